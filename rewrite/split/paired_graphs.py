"""Two graphs read side by side, backwards: which op of the one is which op of the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphs.names import op_of, parse_input
from rewrite.pass_base import RewriteError


class OneToOne:
    """Which is which, either way.

    Attributes:
      of: {one: the other}.
      back: {the other: the one}.
    """

    def __init__(self) -> None:
        self.of: dict[Any, Any] = {}
        self.back: dict[Any, Any] = {}

    def fits(self, one: Any, other: Any) -> bool:
        """Whether these belong to each other, by what is known; they do from then on."""
        return bool(
            self.of.setdefault(one, other) == other and self.back.setdefault(other, one) == one
        )


class PairedGraphs:
    """Which op of one graph is which op of another.

    Attributes:
      partner: {op of the first: op of the second}, as far as they were read.
    """

    def __init__(
        self,
        mine: Mapping[str, Any],
        its: Mapping[str, Any],
        is_same: Callable[[Any, Any], bool],
        reads: Callable[[Mapping[str, Any], Any], Sequence[str]] = lambda _, node: node.input,
    ) -> None:
        """Begins.

        Args:
          mine, its: {name: NodeDef} of both graphs.
          is_same: whether two ops do the same with what they read.
          reads: by graph and op, what that reads.
        """
        self._mine, self._its, self._is_same, self._reads = mine, its, is_same, reads
        self.partner = OneToOne()
        self._todo: list[str] = []

    def pair(self, what: str, mine: Iterable[str], its: Iterable[str]) -> None:
        """Tensors and ops have to be the same, with all that they are made of; "" is none.

        Args:
          what: is done; messages begin with it.
          mine: their names in the first graph.
          its: those in the second one.

        Raises:
          RewriteError: they are others.
        """
        self._pair(what, [*filter(None, mine)], [*filter(None, its)])
        while self._todo:
            node = self._mine[self._todo.pop()]
            other = self._its[self.partner.of[node.name]]
            read = self._reads(self._mine, node), self._reads(self._its, other)
            if len(read[0]) != len(read[1]) or not self._is_same(node, other):
                raise RewriteError(f"{what}: {other.name!r} isn't the op {node.name!r}")
            self._pair(what, *read)

    def _pair(self, what: str, mine: Sequence[str], its: Sequence[str]) -> None:
        for one, other in zip(mine, its, strict=True):
            here, there = op_of(one), op_of(other)
            is_new = here not in self.partner.of
            if (
                parse_input(one).output != parse_input(other).output
                or (here in self._mine) != (there in self._its)
                or not self.partner.fits(here, there)
            ):
                raise RewriteError(f"{what}: {other!r} stands for {one!r}")
            if is_new and here in self._mine:  # a saver may name what was taken out of the graph
                self._todo.append(here)
