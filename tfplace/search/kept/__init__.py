"""Searches that can be killed at any moment and go on."""
