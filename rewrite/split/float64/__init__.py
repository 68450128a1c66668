"""Graphs with all floats widened to float64: their rounding is far below what proofs look for."""
