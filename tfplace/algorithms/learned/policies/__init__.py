"""Distributions over placements: propose devices for groups."""
