"""Which ops must lie together."""

import pytest
from tensorflow.core.framework import graph_pb2

from graphs.building.colocation import colocation_pairs


@pytest.mark.parametrize(
    ("op", "inputs", "loc", "wanted"),
    [
        ("Assign", ("v", "x"), (), [("v", "op")]),
        ("AssignVariableOp", ("h", "x"), (), [("h", "op")]),
        ("Add", ("x", "x"), ("loc:@v",), [("v", "op")]),
        ("Add", ("x", "x"), (), []),
        # A function's arguments are no references, whatever they are called with.
        ("__inference_f_12", ("v", "x"), (), []),
        ("__inference_f_12", ("h",), (), [("h", "op")]),
        ("NoOp", ("^v", "^h"), (), []),
    ],
)
def test_references_handles_and_wishes_tie(op, inputs, loc, wanted):
    graph = graph_pb2.GraphDef()
    node = graph.node.add(name="op", op=op, input=inputs)
    if loc:
        node.attr["_class"].list.s.extend(name.encode() for name in loc)
    dtype_of = {"v": ["float32"], "h": ["resource"], "x": ["float32"]}
    assert colocation_pairs(graph.node, dtype_of) == wanted
