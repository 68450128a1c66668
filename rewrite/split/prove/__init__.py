"""The proofs, which use nothing of `building`: a mistake there must not confirm itself."""
