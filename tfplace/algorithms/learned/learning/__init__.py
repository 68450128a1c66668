"""Losses and updates as pure functions of arrays."""
