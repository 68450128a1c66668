"""A step taken apart, worked by hand: the parts add up to the step, predicted and traced."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.builders import Machine, Op, build_problem
from tfplace.fidelity.error_sources import (
    Amount,
    OpTypeError,
    TracedStep,
    errors_by_op_type,
    taken_apart,
    traced_op_seconds,
)
from tfplace.measurement.step_stats import StepTrace
from tfplace.measurement.training_run import ExecutedNode
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.simulation.simulated import simulated

OPS = [
    Op("a", 2.0, outputs=(4,), type="MatMul"),
    Op("b", 1.0, type="Add"),
    Op("c", (3.0, 1.0), ("a:0",), type="MatMul"),
]
PROBLEM = build_problem(OPS, Machine(2, latency=0.5, bandwidth=8.0))


def trace(rows):
    """Of (name, seconds, whether it is a transfer) each, one after another."""
    names, seconds, moves = zip(*rows, strict=True)
    ends = np.cumsum(seconds)
    return StepTrace(
        names, [""] * len(rows), [""] * len(rows), ends - np.array(seconds), ends, np.array(moves)
    )


def test_compute_and_dispatch_are_the_step_of_all_devices():
    # Predicted: a until 2, its 4 bytes until 3, c on the other device until 4; b meanwhile.
    placed = simulated(PROBLEM, np.array([0, 0, 1], np.int32))
    assert placed.known_schedule().makespan == 4.0
    traces = [
        trace([("a", 2.0, False), ("edge", 1.5, True)]),
        trace([("a", 2.0, False), ("edge", 2.5, True)]),
        trace([("a", 2.0, False), ("edge", 1.0, True), ("other", 2.0, True)]),
    ]
    step = taken_apart("cut", placed, (4.25, 6.0), np.array([2.5, 1.0, 1.5]), traces)
    assert dataclasses.replace(step, op_seconds=None) == TracedStep(
        name="cut",
        compute=Amount(2.0 + 1.0 + 1.0, 5.0),
        transfer=Amount(1.0, 2.5),  # the median of 1.5, 2.5 and 3
        num_transfers=1,
        num_traced_transfers=1,
        dispatch=Amount(2 * 4.25 - 4.0, 2 * 6.0 - 5.0),
        op_seconds=None,
    )
    for part in ("predicted_seconds", "traced_seconds"):
        whole = {"predicted_seconds": 4.25, "traced_seconds": 6.0}[part]
        assert getattr(step.compute, part) + getattr(step.dispatch, part) == 2 * whole


def test_errors_of_op_types_are_summed_over_steps_and_sorted_by_size():
    steps = []
    for placement, seconds in (([0, 0, 1], [2.5, 1.0, 1.5]), ([0, 1, 0], [2.0, 0.5, 3.25])):
        placed = simulated(PROBLEM, np.array(placement, np.int32))
        traces = [trace([("a", 1.0, False)])]
        step = taken_apart("", placed, (1.0, 1.0), np.array(seconds), traces)
        steps.append((placed.device_of_op, step))
    assert errors_by_op_type(PROBLEM, steps) == [
        OpTypeError("MatMul", 2, (2.0 + 1.0) + (2.0 + 3.0), 4.0 + 5.25),
        OpTypeError("Add", 1, 2.0, 1.5),
    ]


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    """x times w, plus b: three ops that compute, on two workers."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4, 3], name="x")
        product = tf.matmul(x, tf.ones([3, 2], name="w"), name="product")
        biased = tf.nn.bias_add(product, tf.ones([2], name="b"), name="biased")
        tf.identity(biased, name="y")
    path = tmp_path_factory.mktemp("models") / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return prepare(ProblemOptions(model=str(path), cluster="workers:2"), trace=False)


def test_what_was_fused_shares_the_time_and_medians_over_steps_count(product):
    names = list(product.problem.graph.op_names)
    nodes = [
        ExecutedNode(
            node.name, "_FusedMatMul" if node.name == "biased" else node.op, "", tuple(node.input)
        )
        for node in product.flat.graph_def.node
        if node.name != "product"
    ]
    traces = [
        trace([("biased", seconds, False), ("y", 0.25, False), ("y", 0.25, False), ("z", 9, True)])
        for seconds in (2.0, 3.0, 10.0)
    ]
    seconds = dict(zip(names, traced_op_seconds(product, nodes, traces).tolist(), strict=True))
    alone = dict(zip(names, product.problem.op_seconds.min(axis=1).tolist(), strict=True))
    both = alone["product"] + alone["biased"]
    assert seconds == {
        **dict.fromkeys(names, 0.0),
        "product": pytest.approx(3.0 * alone["product"] / both),
        "biased": pytest.approx(3.0 * alone["biased"] / both),
        "y": 0.5,  # both runs of one step
    }
