"""What is written is the step that was proven: a mistake in writing it is found."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from graphs.errors import ModelError
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite.pass_base import RewriteError
from rewrite.split.prove.written import prove_written as writing
from rewrite.split.prove.written.prove_written import has_nodes_of, origin, prove_written
from tests.rewrite.split.run_step import split_model
from tests.rewrite.split.write.emission_test import graph_def, saved_model_v1, saved_model_v2


@pytest.fixture(scope="module", params=[saved_model_v2, saved_model_v1, graph_def])
def split(request, tmp_path_factory):
    path, options = request.param(tmp_path_factory.mktemp("model"))
    return split_model(load(path, options), 2)


def changed(split, change):
    """The model with the nodes of its split step changed."""
    graph = copy.deepcopy(split.source.graph_def)
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    nodes = next(
        nodes for nodes in bodies if any(n.op == "MatMul" and "shard_1" in n.name for n in nodes)
    )
    change(nodes, graph)
    return dataclasses.replace(split.source, graph_def=graph)


def named(nodes, op, part):
    return next(node for node in nodes if node.op == op and part in node.name)


def another_shard(nodes, graph):
    node = named(nodes, "MatMul", "shard_1")
    node.input[0] = named(nodes, "MatMul", "shard_0").input[0]


def transposed(nodes, graph):
    node = named(nodes, "MatMul", "shard_1")
    node.attr["transpose_b"].b = not node.attr["transpose_b"].b


def turned_around(nodes, graph):
    node = named(nodes, "ConcatV2", "")
    node.input[0], node.input[1] = node.input[1], node.input[0]


def one_update_more(nodes, graph):
    update = next(
        n for n in nodes if n.op in ("AssignSubVariableOp", "ResourceApplyGradientDescent")
    )
    more = copy.deepcopy(update)
    more.name = update.name + "_again"
    nodes.append(more)
    for function in graph.library.function:
        if function.node_def is nodes or more.name in {n.name for n in function.node_def}:
            function.control_ret[more.name] = more.name
            return
    named(nodes, "IdentityN", "").input.append(f"^{more.name}")


@pytest.mark.parametrize("change", [another_shard, transposed, turned_around, one_update_more])
def test_a_step_that_is_written_otherwise_is_found(split, change):
    prove_written(split.source, split.step, split.outputs)
    with pytest.raises(RewriteError, match="reading the written step"):
        prove_written(changed(split, change), split.step, split.outputs)


@pytest.fixture(scope="module")
def graph_split(tmp_path_factory):
    path, options = graph_def(tmp_path_factory.mktemp("graph"))
    return split_model(load(path, options), 2)


def test_a_graph_with_the_very_nodes_of_the_step_is_not_opened(graph_split, monkeypatch):
    monkeypatch.setattr(writing, "flatten", lambda *_: pytest.fail("it was opened"))
    prove_written(graph_split.source, graph_split.step, graph_split.outputs)


def outputs_turned(nodes, graph):
    values = named(nodes, "IdentityN", "")
    values.input[0] = named(nodes, "ConcatV2", "").name


def without_an_update(nodes, graph):
    for node in nodes:
        kept = [each for each in node.input if "GradientDescent" not in each]
        del node.input[:]
        node.input.extend(kept)


def lost(nodes, graph):
    nodes.remove(named(nodes, "MatMul", "shard_1"))


@pytest.mark.parametrize(
    "change",
    [another_shard, transposed, turned_around, one_update_more, outputs_turned, lost,
     without_an_update],
)  # fmt: skip
def test_nodes_that_are_not_the_very_same_are_read_one_by_one(graph_split, change):
    assert has_nodes_of(graph_split.source, graph_split.step, graph_split.outputs)
    source = changed(graph_split, change)
    assert not has_nodes_of(source, graph_split.step, graph_split.outputs)
    with pytest.raises((RewriteError, ModelError)):
        prove_written(source, graph_split.step, graph_split.outputs)


def test_what_is_handed_on_in_a_circle_has_no_origin():
    nodes = {name: NodeDef(op="Identity", name=name, input=[of]) for name, of in ("ab", "ba")}
    with pytest.raises(RewriteError, match="in a circle"):
        origin(nodes, "a:0")


def test_outputs_that_change_places_are_found(tmp_path):
    path, options = saved_model_v2(tmp_path)
    split = split_model(load(path, options), 2)
    graph = copy.deepcopy(split.source.graph_def)
    function = next(
        f for f in graph.library.function if any("shard_1" in n.name for n in f.node_def)
    )
    first, second = [arg.name for arg in function.signature.output_arg][:2]
    one, other = function.ret[first], function.ret[second]
    function.ret[first], function.ret[second] = other, one
    source = dataclasses.replace(split.source, graph_def=graph)
    with pytest.raises(RewriteError, match="reading the written step"):
        prove_written(source, split.step, split.outputs)


class Swapped(tf.Module):
    """Calls a function that TensorFlow may swap for another one: the call stays one unit."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.ones((3, 4)))
        attributes = {"api_implements": "lstm_1", "api_preferred_device": "CPU"}
        self.swapped = tf.function(
            lambda x, w: (tf.tanh(x @ w), tf.transpose(x)), experimental_attributes=attributes
        )

    @tf.function(input_signature=[tf.TensorSpec([5, 3])])
    def __call__(self, x):
        y, turned = self.swapped(x, self.w)
        return {"y": tf.sin(y), "turned": turned * 2.0}


@pytest.fixture(scope="module")
def swapped(tmp_path_factory):
    module, path = Swapped(), str(tmp_path_factory.mktemp("swapped"))
    tf.saved_model.save(module, path, signatures=module.__call__)
    split = split_model(load(path, LoadOptions()), 2)
    assert any("may swap" in reason for reason in split.flat.unit_reason.values())
    return split


def test_calls_that_stayed_one_unit_are_read_by_what_each_shard_runs(swapped):
    prove_written(swapped.source, swapped.step, swapped.outputs)


@pytest.mark.parametrize("change", ["another op", "outputs that change places", "other input"])
def test_a_mistake_in_what_a_shard_calls_is_found(swapped, change):
    graph = copy.deepcopy(swapped.source.graph_def)
    function = next(f for f in graph.library.function if "_shard_" in f.signature.name)
    if change == "another op":
        named(function.node_def, "Tanh", "").op = "Sin"
    elif change == "outputs that change places":
        first, second = (arg.name for arg in function.signature.output_arg)
        one, other = function.ret[first], function.ret[second]
        function.ret[first], function.ret[second] = other, one
    else:
        node = named(function.node_def, "MatMul", "")
        node.input[0], node.input[1] = node.input[1], node.input[0]
    source = dataclasses.replace(swapped.source, graph_def=graph)
    with pytest.raises(RewriteError, match="reading the written step"):
        prove_written(source, swapped.step, swapped.outputs)


def test_a_call_that_hands_on_what_is_fed_is_written_as_it_was_proven(tmp_path):
    """What comes after such a call waits for the input, which an argument of a function is."""
    module = tf.Module()
    module.weight = tf.Variable(tf.ones([4, 2]))

    @tf.function
    def forward(x):
        return tf.tanh(x @ module.weight)

    @tf.function
    def loss_of(x):
        return tf.reduce_mean(forward(x) ** 2)

    @tf.function(input_signature=[tf.TensorSpec([6, 4])])
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = loss_of(x)
        module.weight.assign_sub(tape.gradient(loss, module.weight))
        return {"loss": loss, "after": forward(x)}

    tf.saved_model.save(module, str(tmp_path), signatures={"train_step": train_step})
    split = split_model(load(str(tmp_path), LoadOptions()), 2)
    waited_for = {name for node in split.step.graph_def.node for name in node.input}
    assert "^train_step_x" in waited_for
    prove_written(split.source, split.step, split.outputs)
