"""The proofs, which use nothing of `build`: a mistake there must not confirm itself."""
