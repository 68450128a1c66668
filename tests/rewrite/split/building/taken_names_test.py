"""Models that already hold the names that a split step takes: nothing is lost, nothing mixed up."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf

from graphs.errors import NothingToSplitError
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.loading.saved_model_file import read_signatures
from graphs.loading.sniff import sniff
from rewrite.split.prove.structure.check_resharding import prove_joints
from rewrite.split.prove.written.prove_written import prove_written
from tests.rewrite.split.run_step import split_model
from tests.rewrite.split.split_model_test import _emitted, _fed, _saved, _trained

v1 = tf.compat.v1
BATCH = 5
FETCHES = ("loss:0", "hidden:0", "train")


def training_graph():
    """A step with a loop, a mean and a sum over the batch, a shape, and gradients."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 4), "x")
        weight = v1.get_variable(
            "weight", (4, 4), initializer=v1.ones_initializer(), use_resource=True
        )
        twice = tf.function(
            lambda y: tf.while_loop(lambda i, _: i < 2, lambda i, z: (i + 1, tf.tanh(z)), (0, y))[1]
        )
        hidden = tf.identity(twice(x @ weight), name="hidden")
        loss = tf.reduce_mean(tf.reshape(hidden, [BATCH, 2, 2]), name="mean")
        loss = tf.add(loss, tf.reduce_sum(hidden) / BATCH, name="loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
        return graph.as_graph_def()


def written(graph_def, path):
    path.write_bytes(graph_def.SerializeToString())
    return str(path)


def with_names(graph_def, ops, functions, in_step):
    """The graph with an op, and a function, of each of these names."""
    result = copy.deepcopy(graph_def)
    for name in sorted(ops):
        result.node.add(op="NoOp", name=name)
    if in_step:
        train = next(node for node in result.node if node.name == "train")
        train.input.extend(f"^{name}" for name in sorted(ops))
    first = result.library.function[0]
    for name in sorted(functions):
        result.library.function.add().CopyFrom(first)
        result.library.function[-1].signature.name = name
    return result


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """A graph, and the names of all ops and functions that splitting it adds."""
    graph_def = training_graph()
    path = written(graph_def, tmp_path_factory.mktemp("plain") / "model.pb")
    split = split_model(load(path, LoadOptions(fetch=FETCHES)), 2)
    made = split.source.split_graph
    own = {node.name for node in graph_def.node}
    ops = {node.name for node in made.node} - own
    functions = {each.signature.name for each in made.library.function}
    functions -= {each.signature.name for each in graph_def.library.function}
    assert len(ops) > 50 and functions and any(name.startswith("whole/") for name in ops)
    opened = {name for name in split.flat.nodes if name.startswith("PartitionedCall/")}
    return graph_def, {*ops, "tfplace_output_0", "whole"}, functions, opened


@pytest.mark.parametrize("in_step", [False, True], ids=["beside the step", "in the step"])
def test_a_graph_whose_names_are_taken(names, in_step, tmp_path):
    given, ops, functions, opened = names
    if in_step:  # the step itself can't have ops of these names
        ops = ops - opened
    graph_def = with_names(given, ops, functions, in_step)
    path = written(graph_def, tmp_path / "model.pb")
    split, emitted = _emitted(path, tmp_path / "split", 2, LoadOptions(fetch=FETCHES))
    prove_joints(split.flat, split.decisions, split.step, 2)
    both = split.source.split_graph
    assert len({node.name for node in both.node}) == len(both.node)
    library = {each.signature.name: each for each in both.library.function}
    assert len(library) == len(both.library.function)
    for each in graph_def.library.function:
        assert library[each.signature.name] == each
    for node in graph_def.node:
        if node.name in ops - opened:
            assert node in both.node
    results = [_trained(emitted, signature) for signature in ("train_step", "train_step_whole")]
    for key, value in results[0].items():
        np.testing.assert_allclose(value, results[1][key], rtol=1e-5, err_msg=key)


def test_a_call_that_is_fetched_for_its_effects(tmp_path):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 4), "x")
        weight = v1.get_variable(
            "weight", (4, 4), initializer=v1.ones_initializer(), use_resource=True
        )

        @tf.function
        def step():
            loss = tf.reduce_mean(tf.tanh(x @ weight))
            weight.assign_sub(0.1 * tf.gradients(loss, weight)[0])
            return loss

        call = step().op.name
        v1.global_variables_initializer()
    graph_def = graph.as_graph_def()
    path = written(graph_def, tmp_path / "model.pb")
    split = split_model(load(path, LoadOptions(fetch=(call,))), 2)
    prove_written(split.source, split.step, split.outputs)
    weights = []
    for made in (graph_def, split.source.split_graph):
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            v1.import_graph_def(made, name="")
            session.run("weight/Assign")
            for seed in range(2):
                fed = np.random.default_rng(seed).normal(size=(BATCH, 4))
                session.run(graph.get_operation_by_name(call), {"x:0": fed})
            weights.append(session.run("weight/Read/ReadVariableOp:0"))
    assert np.abs(weights[0] - 1).max() > 1e-3
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-5)


def test_ops_that_are_fetched_beside_what_they_make(tmp_path):
    graph_def = training_graph()
    path = written(graph_def, tmp_path / "model.pb")
    plain = split_model(load(path, LoadOptions(fetch=FETCHES)), 2)
    names = {node.name for node in plain.step.graph_def.node}
    constants = [node.name for node in graph_def.node
                 if node.op == "Const" and f"{node.name}/shard_0" in names]  # fmt: skip
    assert constants
    fetches = (*FETCHES, "hidden", "loss", *constants)
    split = split_model(load(path, LoadOptions(fetch=fetches)), 2)
    both = split.source.split_graph
    assert len({node.name for node in both.node}) == len(both.node)
    prove_written(split.source, split.step, split.outputs)


def test_the_unsplit_step_of_a_split_model_is_split_again(tmp_path):
    given = _saved(tmp_path / "given", None)
    _, once = _emitted(given, tmp_path / "once", 2)
    with pytest.raises(NothingToSplitError):  # its parts have batches of their own
        split_model(load(once, LoadOptions()), 2)
    options = LoadOptions(signature="train_step_whole")
    split, twice = _emitted(once, tmp_path / "twice", 3, options)
    signatures = read_signatures(sniff(twice).proto.meta_graphs[0])
    names = ["train_step", "train_step_whole", "train_step_whole_whole"]
    assert sorted(signatures) == names
    one, other = tf.saved_model.load(given), tf.saved_model.load(twice)
    for name in names:
        x, y = _fed(7)
        wanted = one.signatures["train_step"](x=x, y=y)
        found = other.signatures[name](x=x, y=y)
        for key, value in wanted.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5, err_msg=key)
    advice = [s for n in split.step.graph_def.node if n.op == "Const"
              for s in n.attr["value"].tensor.string_val]  # fmt: skip
    assert any(b"signature train_step_whole_whole;" in each for each in advice)


def test_a_signature_of_the_name_that_the_unsplit_step_gets(tmp_path):
    module = tf.Module()
    module.w = tf.Variable(tf.ones((4, 2)))
    step = tf.function(
        lambda x: {"loss": tf.reduce_mean(tf.tanh(x @ module.w))},
        input_signature=[tf.TensorSpec([None, 4])],
    )
    both = {"train_step": step, "train_step_whole": step}
    tf.saved_model.save(module, str(tmp_path / "given"), signatures=both)
    _, split = _emitted(str(tmp_path / "given"), tmp_path / "split", 2)
    signatures = read_signatures(sniff(split).proto.meta_graphs[0])
    assert sorted(signatures) == ["train_step", "train_step_whole", "train_step_whole_"]
