"""Predicted step times against measured ones, over many placements, and why they differ."""
