"""What is reached from somewhere: ops by what they read, functions by what they call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def reached(starts: Iterable[Item], leads_to: Callable[[Item], Iterable[Item]]) -> dict[Item, None]:
    """The starts and everything that they lead to, each once, in an order that is always the same.

    Args:
      starts: where to begin.
      leads_to: what an item leads to directly.
    """
    found = dict.fromkeys(starts)
    pending = list(found)
    while pending:
        for item in leads_to(pending.pop()):
            if item not in found:
                found[item] = None
                pending.append(item)
    return found
