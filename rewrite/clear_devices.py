"""Takes device strings out of the main graph and the function library."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

from graphs.flat_graph import Origin
from rewrite.pass_base import PassResult, RewriteError, op_path


def bodies(graph_def: Any) -> Iterator[tuple[str, Any]]:
    """(function name, its NodeDefs) of the main graph, named "", and of each function."""
    yield "", graph_def.node
    for function in graph_def.library.function:
        yield function.signature.name, function.node_def


@dataclasses.dataclass(frozen=True)
class ClearDevices:
    """Clears NodeDef.device everywhere but at the ops of `keep` (their `calls` don't count)."""

    keep: frozenset[Origin] = frozenset()

    def requires(self, graph_def: Any) -> None:
        """Any GraphDef will do."""

    def __call__(self, graph_def: Any) -> PassResult:
        changed = list(self._pinned(graph_def))
        if not changed:
            return PassResult(graph_def, modified=False)
        cleared = copy.deepcopy(graph_def)
        for _, node in self._pinned(cleared):
            node.device = ""
        paths = tuple(op_path(function, node.name) for function, node in changed)
        return PassResult(cleared, modified=True, changed_ops=paths)

    def ensures(self, graph_def: Any, result: PassResult) -> None:
        left = next(self._pinned(result.graph_def), None)
        if left is not None:
            raise RewriteError(f"clearing devices: {op_path(left[0], left[1].name)!r} kept its own")

    def _pinned(self, graph_def: Any) -> Iterator[tuple[str, Any]]:
        kept = {(origin.function, origin.node) for origin in self.keep}
        for function, nodes in bodies(graph_def):
            for node in nodes:
                if node.device and (function, node.name) not in kept:
                    yield function, node
