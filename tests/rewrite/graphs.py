"""Hand-sized GraphDefs with functions, built from protos alone."""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import function_pb2, graph_pb2, types_pb2

FLOAT = types_pb2.DT_FLOAT


def add_op(nodes: Any, name: str, op: str, inputs: tuple[str, ...] = (), device: str = "") -> Any:
    """Adds a float op to the main graph or to a function body."""
    node = nodes.add(name=name, op=op, input=inputs, device=device)
    if op == "Placeholder":
        node.attr["dtype"].type = FLOAT
    elif op in ("Add", "Neg", "Square", "Identity"):
        node.attr["T"].type = FLOAT
    return node


def add_call(nodes: Any, name: str, function: str, inputs: tuple[str, ...]) -> Any:
    """Adds a PartitionedCall of a float function."""
    node = nodes.add(name=name, op="PartitionedCall", input=inputs)
    node.attr["f"].func.name = function
    node.attr["Tin"].list.type.extend([FLOAT] * len(inputs))
    node.attr["Tout"].list.type.append(FLOAT)
    return node


def add_function(graph_def: Any, name: str) -> function_pb2.FunctionDef:
    """Adds a function x -> y; the caller adds ops and names what y is in `ret`."""
    function = graph_def.library.function.add()
    function.signature.name = name
    function.signature.input_arg.add(name="x", type=FLOAT)
    function.signature.output_arg.add(name="y", type=FLOAT)
    return function


def shared_function() -> graph_pb2.GraphDef:
    """out = first(x) + second(x); both call `leaf`, x -> -(x*x), through a body of their own."""
    graph_def = graph_pb2.GraphDef()
    graph_def.versions.producer = 1882
    add_op(graph_def.node, "x", "Placeholder")
    add_call(graph_def.node, "call_first", "first", ("x",))
    add_call(graph_def.node, "call_second", "second", ("x",))
    add_op(graph_def.node, "out", "Add", ("call_first", "call_second"))
    leaf = add_function(graph_def, "leaf")
    add_op(leaf.node_def, "square", "Square", ("x",))
    add_op(leaf.node_def, "neg", "Neg", ("square:y:0",))
    leaf.ret["y"] = "neg:y:0"
    for name in ("first", "second"):
        function = add_function(graph_def, name)
        add_call(function.node_def, "inner", "leaf", ("x",))
        function.ret["y"] = "inner:output:0"
    return graph_def
