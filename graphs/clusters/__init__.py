"""Clusters: those with names, those in files, and those that are present."""
