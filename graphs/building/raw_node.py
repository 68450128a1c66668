"""A node of a graph whose calls are being opened, before its names are resolved."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from graphs.flat_graph import Origin

NOT_OF_THE_MODEL = Origin("", "", ())


@dataclasses.dataclass(slots=True)
class RawNode:
    """A node before names are resolved.

    Attributes:
      node: the NodeDef as it stands in its body.
      inputs: the tensors that it takes, flat names or aliases.
      controls: the ops that it waits for, flat names or calls.
      origin: where it stands in the model.
      device: its device string, or that of the call that it is in.
      share: how often it runs in one run; less than once in a branch of a conditional.
      conditional: path of the innermost opened conditional that it is in a branch of, or "".
      after: tensors and ops that the op graph puts before it though no edge says so.
      beside: ops whose device it must have.
      follows_input: whether its device is that of the op that makes its first input.
    """

    node: Any
    inputs: list[str]
    controls: list[str]
    origin: Origin
    device: str
    share: float = 1.0
    conditional: str = ""
    after: Sequence[str] = ()
    beside: Sequence[str] = ()
    follows_input: bool = False


@dataclasses.dataclass(frozen=True)
class Body:
    """The body that nodes stand in.

    Attributes:
      calls: the chain of functions that leads there, outermost first; empty for the main graph.
      share: how often it runs in one run.
      conditional: path of the innermost opened conditional that it is in a branch of, or "".
      gate: the op that is live only if that branch runs, or "".
      paths: names of its nodes and all scopes of these.
    """

    calls: tuple[str, ...] = ()
    share: float = 1.0
    conditional: str = ""
    gate: str = ""
    paths: frozenset[str] = frozenset()


def paths_of(nodes: Sequence[Any]) -> frozenset[str]:
    """The names of nodes and all scopes of these: "a/b/c" has the scopes "a" and "a/b"."""
    paths: set[str] = set()
    for node in nodes:
        path = node.name
        while path and path not in paths:
            paths.add(path)
            path = path.rpartition("/")[0]
    return frozenset(paths)


def no_op(name: str) -> Any:
    """A NodeDef that only orders others."""
    from tensorflow.core.framework import node_def_pb2

    return node_def_pb2.NodeDef(name=name, op="NoOp")
