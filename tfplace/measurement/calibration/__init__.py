"""Measures the devices and links of a cluster that is present."""
