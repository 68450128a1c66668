"""Proofs that a written model computes what the given one does."""
