"""Reads a model file of any kind, finds one run of it, and makes up what the run is fed."""
