"""Which ops must lie together."""

import pytest
from tensorflow.core.framework import graph_pb2

from graphs.building.colocation import colocation_pairs
from graphs.building.node_outputs import outputs_of
from graphs.building.shapes import TensorProperties
from graphs.graph_edges import edges_of


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
    dtype_of = {"v": ["float32"], "h": ["resource"], "x": ["float32"]}
    for name in dtype_of:
        graph.node.add(name=name, op="Placeholder")
    node = graph.node.add(name="op", op=op, input=inputs)
    if loc:
        node.attr["_class"].list.s.extend(name.encode() for name in [*loc, "loc:@of no graph"])
    shapes, num_bytes = {name: [(2,)] for name in dtype_of}, {name: [8] for name in dtype_of}
    outputs = outputs_of(graph.node, TensorProperties(dtype_of, shapes, num_bytes, []))
    pairs = colocation_pairs(graph.node, edges_of(graph.node), outputs)
    assert [tuple(graph.node[each].name for each in pair) for pair in pairs] == wanted
