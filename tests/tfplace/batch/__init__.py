"""Tests of tfplace.batch."""
