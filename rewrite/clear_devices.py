"""Takes device strings out of the main graph and the function library."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

from graphs.flat_graph import Origin
from rewrite.annotate_devices import places_of
from rewrite.call_graph import CallGraph
from rewrite.pass_base import PassResult, RewriteError, op_path


def bodies(graph_def: Any) -> Iterator[tuple[str, Any]]:
    """(function name, its NodeDefs) of the main graph, named "", and of each function."""
    yield "", graph_def.node
    for function in graph_def.library.function:
        yield function.signature.name, function.node_def


@dataclasses.dataclass(frozen=True)
class ClearDevices:
    """Clears NodeDef.device everywhere but at some ops.

    Attributes:
      keep: these ops, as AnnotateDevices names them.
    """

    keep: Collection[Origin] = ()

    def requires(self, graph_def: Any) -> None:
        """Any GraphDef will do."""

    def __call__(self, graph_def: Any) -> PassResult:
        changed = [op_path(function, node.name) for function, node in self._to_clear(graph_def)]
        if not changed:
            return PassResult(graph_def, modified=False)
        cleared = copy.deepcopy(graph_def)
        for _, node in self._to_clear(cleared):
            node.device = ""
        return PassResult(cleared, modified=True, changed_ops=tuple(changed))

    def ensures(self, graph_def: Any, result: PassResult) -> None:
        for function, node in self._to_clear(result.graph_def):
            raise RewriteError(f"clearing devices: {op_path(function, node.name)!r} kept its own")

    def _to_clear(self, graph_def: Any) -> Iterator[tuple[str, Any]]:
        placed = [(f, node) for f, nodes in bodies(graph_def) for node in nodes if node.device]
        calls = CallGraph(graph_def)
        keep = self.keep if placed else ()
        kept = {place for origin in keep for place in places_of(calls, origin)}
        for function, node in placed:
            if (function, node.name) not in kept:
                yield function, node
