"""Tests of tfplace.resuming."""
