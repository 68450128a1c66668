"""`python -m tfplace` is the same as `tfplace`."""

from tfplace.cli import run

run()
