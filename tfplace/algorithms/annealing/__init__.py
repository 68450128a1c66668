"""Compiled simulated annealing over several levels at once."""
