"""The messages of a split step on two workers: those that were predicted, and no others."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.executed_controls import StepEnd, step_end, without_implied
from tests.builders import Op, build_problem
from tests.tables.messages import END, Message, fullest, predicted_messages, traced_messages
from tfplace.algorithms.placers.data_parallel import data_parallel
from tfplace.measurement.step_stats import StepTrace
from tfplace.measurement.trace import trace_run
from tfplace.measurement.training_run import exactly
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare

DEVICES = ("d0", "d1", "d2")


def test_predicted_messages_are_tensors_and_one_word_of_each_device_at_the_end():
    ops = [Op("a", outputs=(4, 4)), Op("b", inputs=("a:0",)), Op("c", inputs=("a:0", "a:1"))]
    graph = build_problem([*ops, Op("d", inputs=("b:0",)), Op("end", type="NoOp")]).graph
    end = StepEnd(np.array([4], np.int32), np.array([0, 1, 2, 3], np.int32))
    placement = np.array([0, 1, 1, 2, 0], np.int32)
    assert predicted_messages(graph, end, placement, DEVICES) == {
        Message("a", "d1"): 2,  # two tensors; the first one has two users there
        Message("b", "d2"): 1,
        Message(END, "d0"): 1,  # of b and c
        Message("d", "d0"): 1,
    }


def test_traced_messages_are_named_by_their_ops():
    rows = {
        "edge_12_a/b": "RecvTensor",
        "edge_9_GroupCrossDeviceControlEdges_1/end": "RecvTensor",
        "edge_8_GroupCrossDeviceControlEdges_0/gate": "RecvTensor",
        "edge_7": "MatMul",
    }
    none = np.zeros(len(rows))
    trace = StepTrace([*rows], [*rows.values()], ["d1"] * 4, none, none, none > 0)
    gate = Message("GroupCrossDeviceControlEdges_0/gate", "d1")
    assert traced_messages(trace, ["end"]) == {
        Message("a/b", "d1"): 1,
        Message(END, "d1"): 1,
        gate: 1,
    }


class Net(tf.Module):
    """Two layers, Adam's moments by hand, a step count that all updates read."""

    def __init__(self):
        generator = np.random.default_rng(0)
        shapes = ((8, 16), (16,), (16, 4), (4,))
        values = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
        self.weights = [tf.Variable(value) for value in values]
        self.moments = [tf.Variable(tf.zeros(shape)) for shape in shapes]
        self.count = tf.Variable(0, dtype=tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([6, 8], name="x")])
    def train_step(self, x):
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(x @ self.weights[0] + self.weights[1])
            loss = tf.reduce_sum(tf.square(hidden @ self.weights[2] + self.weights[3])) / 24.0
        for weight, moment, slope in zip(
            self.weights, self.moments, tape.gradient(loss, self.weights), strict=True
        ):
            moment.assign_add(0.1 * (slope - moment))
            weight.assign_sub(moment / (1.0 + tf.cast(self.count, tf.float32)))
        self.count.assign_add(1)
        return loss


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("net") / "model")
    net = Net()
    tf.saved_model.save(net, path, {"train_step": net.train_step})
    return prepare(ProblemOptions(path, cluster="workers:2", num_shards=2), trace=False)


def test_a_split_step_sends_what_was_predicted_and_nothing_else(prepared):
    problem = prepared.problem
    placement = data_parallel(problem)
    end = step_end(without_implied(prepared.built.graph))
    predicted = predicted_messages(problem.graph, end, placement, problem.device_names)
    assert collections.Counter(message.device for message in predicted).total() > 8
    traces = trace_run(
        prepared.opened_on(placement),
        prepared.opened_run(),
        prepared.cluster,
        exactly(3, warmup_steps=1),
    )
    assert isinstance(traces, list), traces
    names = [problem.graph.op_names[op] for op in end.ops]
    assert traced_messages(fullest(traces), names) == predicted
