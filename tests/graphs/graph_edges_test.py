"""Inputs of ops as arrays."""

import numpy as np
from tensorflow.core.framework import graph_pb2

from graphs.graph_edges import edges_of, in_order


def test_inputs_become_arrays_in_their_order():
    graph = graph_pb2.GraphDef()
    graph.node.add(name="a", op="Split")
    graph.node.add(name="b", op="Sub", input=["a:1", "c", "^a"])  # c comes behind it
    graph.node.add(name="c", op="Neg", input=["a:0", "^b"])
    edges = edges_of(graph.node)
    assert edges.producer.tolist() == [0, 2, 0, 0, 1]
    assert edges.output.tolist() == [1, 0, -1, 0, -1]
    assert edges.consumer.tolist() == [1, 1, 1, 2, 2] and edges.first.tolist() == [0, 0, 3, 5]


def test_outputs_of_a_body_are_counted_in_what_their_name_says():
    body = graph_pb2.GraphDef()
    body.node.add(name="a", op="Split", input=["argument"])
    body.node.add(name="b", op="Neg", input=["a:output:1", "a:output", "^a"])
    edges = edges_of(body.node)
    assert edges.producer.tolist() == [-1, 0, 0, 0] and edges.output.tolist() == [0, 1, 0, -1]


def test_what_no_op_makes_has_no_producer():
    graph = graph_pb2.GraphDef()
    odd = ["missing", "^missing", "", "^", "^a:0", "a:", "a:b:c", f"a:{1 << 40}", "f:out:0"]
    graph.node.add(name="a", op="AddN", input=[*odd, "a"])
    assert edges_of(graph.node).producer.tolist() == [-1] * len(odd) + [0]
    assert edges_of([]).producer.tolist() == [] and edges_of([]).first.tolist() == [0]


def test_ops_come_as_soon_as_all_that_they_wait_for():
    producer, consumer = np.array([3, 3, 0, 1, 1]), np.array([0, 2, 1, 4, 4])
    assert in_order(producer, consumer, 5) == [3, 0, 2, 1, 4]
    assert in_order(producer, consumer, 5, lowest_first=True) == [3, 0, 1, 2, 4]
    in_circles = np.array([0, 1, 2]), np.array([1, 0, 3])  # 2 and 3 wait for none of them
    assert in_order(*in_circles, 4) == [2, 3]
