"""What a model of the corpus is, and the table that all of them are in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

Build = Callable[[Path], str]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A foreign model that is made on the spot.

    Attributes:
      name: of the model.
      family: the module that makes it.
      build: makes it in an empty folder; returns the path to hand to `tfplace optimize`.
      flags: more flags for optimize.
      refused: what the error says, for a model that is refused; empty for one that is placed.
      not_compared: what of each entry of `verified.not_compared` there may be, as parts of these
        sentences; any other is a failure.
      heavy: whether it takes long, and is left out of the test suite.
    """

    name: str
    family: str
    build: Build
    flags: Sequence[str] = ()
    refused: str = ""
    not_compared: Sequence[str] = ()
    heavy: bool = False


CORPUS: dict[str, Entry] = {}


def model(
    flags: Sequence[str] = (),
    refused: str = "",
    not_compared: Sequence[str] = (),
    heavy: bool = False,
) -> Callable[[Build], Build]:
    """Puts the function that makes a model into the table, under the function's name."""

    def register(build: Build) -> Build:
        family = build.__module__.rpartition(".")[2]
        name = build.__name__
        CORPUS[name] = Entry(name, family, build, flags, refused, not_compared, heavy)
        return build

    return register
