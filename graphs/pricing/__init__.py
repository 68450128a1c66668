"""Prices ops on each kind of device, and knows where they have a kernel."""
