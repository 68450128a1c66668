"""Devices of the variables that a TensorFlow 2 SavedModel keeps in its object graph.

`tf.saved_model.load` makes variables from the object graph, not from the VarHandleOps of the
main graph, and puts them where SavedVariable.device says, if asked to. Which object is which op
is told by the calls of the main graph: the last inputs of a call are, in order, the objects
that its concrete function is bound to. Names can't tell: many variables may be called "kernel".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewrite.call_graph import copy_of

_HANDLE_OPS = frozenset({"VarHandleOp", "HashTableV2", "MutableHashTableV2"})


def write_object_devices(meta_graph: Any) -> None:
    """Sets the devices of variables and tables in the object graph from their handle ops.

    Objects that no call of the main graph captures are matched by shared name where it is
    unique; the rest get no device.

    Args:
      meta_graph: MetaGraphDef with its placed graph; changed in place.
    """
    objects = meta_graph.object_graph_def.nodes
    for saved in objects:
        if saved.WhichOneof("kind") == "variable":
            saved.variable.device = ""
    handles = {n.name: n for n in meta_graph.graph_def.node if n.op in _HANDLE_OPS}
    object_of_handle = dict(_bound(meta_graph, handles))
    object_of_handle = {**_by_shared_name(meta_graph, handles), **object_of_handle}
    for name, index in object_of_handle.items():
        kind = objects[index].WhichOneof("kind")
        if kind == "variable":
            objects[index].variable.device = handles[name].device
        elif kind == "resource" and handles[name].device:
            objects[index].resource.device = handles[name].device


def _bound(meta_graph: Any, handles: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """(handle op, index of its object) of everything that calls in the main graph capture."""
    concrete = meta_graph.object_graph_def.concrete_functions
    original = {f.signature.name: copy_of(f) for f in meta_graph.graph_def.library.function}
    num_objects = len(meta_graph.object_graph_def.nodes)
    for node in meta_graph.graph_def.node:
        function = node.attr["f"].func.name if "f" in node.attr else node.op
        function = original.get(function, function) if function not in concrete else function
        if function not in concrete:
            continue
        bound = list(concrete[function].bound_inputs)
        inputs = [name for name in node.input if not name.startswith("^")]
        if not bound or len(bound) > len(inputs):
            continue
        for tensor, index in zip(inputs[-len(bound) :], bound, strict=True):
            name = tensor.removesuffix(":0")
            if name in handles and index < num_objects:
                yield name, index


def _by_shared_name(meta_graph: Any, handles: dict[str, Any]) -> dict[str, int]:
    """{handle op: object} where exactly one of each has the name."""
    objects_named: dict[str, list[int]] = {}
    for index, saved in enumerate(meta_graph.object_graph_def.nodes):
        if saved.WhichOneof("kind") == "variable":
            objects_named.setdefault(saved.variable.name, []).append(index)
    handles_named: dict[str, list[str]] = {}
    for name, node in handles.items():
        shared = node.attr["shared_name"].s.decode(errors="replace") or name
        handles_named.setdefault(shared, []).append(name)
    return {
        names[0]: objects_named[shared][0]
        for shared, names in handles_named.items()
        if len(names) == 1 and len(objects_named.get(shared, ())) == 1
    }
