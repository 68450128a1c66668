"""Tests of tfplace.executors."""
