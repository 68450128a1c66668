"""Weights in pieces: variables that are cut along an axis, each piece a variable of its own."""
