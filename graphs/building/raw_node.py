"""A node of a graph whose calls are being opened, before its names are resolved."""

import copy
import dataclasses
from collections.abc import Sequence

import graphs.late_tensorflow as tf
from graphs.flat_graph import Origin
from graphs.protos import NodeDef

NOT_OF_THE_MODEL = Origin("", "", ())
UNIT_OPS = {
    "While": "a loop",
    "StatelessWhile": "a loop",
    "SymbolicGradient": "a gradient function",
    "MapDefun": "a mapped function",
    "XlaLaunch": "compiled by XLA",
}
"""Ops that run functions and are never opened, and what they are."""


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

    node: NodeDef
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
      gate: what ops without inputs wait for: live only if that branch runs, and after what the
        innermost call that says so waits for; or "".
      paths: names of its nodes and all scopes of these.
    """

    calls: tuple[str, ...] = ()
    share: float = 1.0
    conditional: str = ""
    gate: str = ""
    paths: frozenset[str] = frozenset()


def paths_of(nodes: Sequence[NodeDef]) -> frozenset[str]:
    """The names of nodes and all scopes of these: "a/b/c" has the scopes "a" and "a/b"."""
    paths: set[str] = set()
    for node in nodes:
        path = node.name
        while path and path not in paths:
            paths.add(path)
            path = path.rpartition("/")[0]
    return frozenset(paths)


def no_op(name: str) -> NodeDef:
    """A NodeDef that only orders others."""
    return tf.compat.v1.NodeDef(name=name, op="NoOp")


def substituted(node: NodeDef, call: NodeDef) -> NodeDef:
    """The node with the attributes that its function leaves open, as the call gives them."""
    if not any(value.placeholder for value in node.attr.values()):
        return node
    result = copy.deepcopy(node)
    for key, value in node.attr.items():
        if value.placeholder and value.placeholder in call.attr:
            result.attr[key].CopyFrom(call.attr[value.placeholder])
    return result
