"""Which functions a node calls or refers to, and which calls TensorFlow never opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

CALL_OPS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "RemoteCall"})
KEPT_WHOLE = {
    "_XlaMustCompile": "compiled by XLA",
    "api_implements": "a function that TensorFlow may swap for another implementation",
    "_noinline": "a function that says _noinline",
}


def called_function(node: Any, library: Mapping[str, Any]) -> str | None:
    """The function that a node calls and that is in the library, else None."""
    if node.op in CALL_OPS:
        name = node.attr["f"].func.name
        return name if name in library else None
    return node.op if node.op in library else None


def kept_whole(node: Any, function: Any) -> str:
    """Why a call stays one unit; empty for calls that are opened.

    TensorFlow never opens calls with these attributes: XLA compiles the whole function; a
    function with `api_implements` may be swapped for another one (cuDNN's LSTM) at run time.
    """
    for key, reason in KEPT_WHOLE.items():  # reading a missing key of a proto map would add it
        for each in (node, function):
            if key in each.attr and (each.attr[key].b or each.attr[key].s):
                return reason
    return ""


def referred_functions(nodes: Sequence[Any], library: Mapping[str, Any]) -> Iterator[str]:
    """The functions of the library that nodes name: as their op or in an attribute."""
    for node in nodes:
        if node.op in library:
            yield node.op
        for value in node.attr.values():
            kind = value.WhichOneof("value")
            if kind == "func":
                names = [value.func.name]
            elif kind == "list" and value.list.func:
                names = [func.name for func in value.list.func]
            else:
                continue
            yield from (name for name in names if name in library)
