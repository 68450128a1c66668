"""Policies that need no learning: fixed placements, list scheduling, cuts, annealing."""
