"""Clusters by name, from files, and as they are found."""
