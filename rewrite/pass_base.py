"""Passes: each takes a graph and makes a new one, and checks itself before and after."""

import dataclasses
from collections.abc import Iterable
from typing import Protocol

from graphs.protos import GraphDef


class RewriteError(Exception):
    """A pass broke its own promise: a defect of tfplace, not of the model (exit status 70)."""

    exit_status = 70


@dataclasses.dataclass(frozen=True)
class PassResult:
    """What a pass made.

    Attributes:
      graph_def: the new GraphDef; the input itself, untouched, where nothing changed.
      modified: whether graph_def differs from the input.
      changed_ops: paths (see op_path) of changed or added ops, in the order of the file.
    """

    graph_def: GraphDef
    modified: bool
    changed_ops: tuple[str, ...] = ()


class Pass(Protocol):
    """A rewrite of a GraphDef. It never changes the proto that it is given."""

    def requires(self, graph_def: GraphDef) -> None:
        """Raises a TfplaceError where the pass can't be applied to graph_def."""

    def __call__(self, graph_def: GraphDef) -> PassResult:
        """Rewrites; what `requires` promised may be taken for granted."""

    def ensures(self, graph_def: GraphDef, result: PassResult) -> None:
        """Raises RewriteError where result is not what the pass promises for graph_def."""


def op_path(function: str, node: str) -> str:
    """ "node" in the main graph, "function/node" in a function body."""
    return f"{function}/{node}" if function else node


def run_passes(graph_def: GraphDef, passes: Iterable[Pass]) -> PassResult:
    """Applies passes one after the other, each between its `requires` and its `ensures`.

    Returns:
      The last graph, whether any pass changed something, and all changed ops, each once.
    """
    modified = False
    changed: dict[str, None] = {}
    for rewrite in passes:
        rewrite.requires(graph_def)
        result = rewrite(graph_def)
        rewrite.ensures(graph_def, result)
        graph_def = result.graph_def
        modified = modified or result.modified
        changed.update(dict.fromkeys(result.changed_ops))
    return PassResult(graph_def, modified, tuple(changed))
