"""Whole steps in float64, as given and split."""
