"""Joins, sums and cuts are where they should be, by reading the graph."""
