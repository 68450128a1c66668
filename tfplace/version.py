"""The version of tfplace, for reports and setup.py."""

__version__ = "0.1.0"
