"""Values by their keys."""

from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def by_key(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """{key: the values of all its pairs}, both in the order in which they come."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
