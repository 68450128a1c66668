"""What the seconds of a command are spent on: budget.txt has all of it, and so has the contract."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Part(NamedTuple):
    """What one thing may take.

    Attributes:
      share: of what the table says.
      least, most: seconds, whatever the share comes to.
    """

    share: float
    least: float
    most: float

    def of(self, seconds: float = 0.0) -> float:
        """Its seconds where there are so many in all."""
        return min(max(self.share * seconds, self.least), self.most)


TABLE = Path(__file__).with_suffix(".txt").read_text("utf-8")
"""Markdown: a name, a share and of what, the least and the most seconds, and why."""


def _parts() -> dict[str, Part]:
    parts = {}
    for line in TABLE.splitlines()[2:]:
        name, share, _, least, most, _ = (cell.strip() for cell in line.strip("|").split("|"))
        parts[name] = Part(float(share or 0), float(least or 0), float(most or math.inf))
    return parts


PARTS: Mapping[str, Part] = _parts()
"""{name: part}"""
