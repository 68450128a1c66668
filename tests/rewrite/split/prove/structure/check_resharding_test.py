"""What is built is proven, and each of a hundred random changes of it is found."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
import tensorflow as tf

from graphs import zoo
from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite.pass_base import RewriteError
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import decide
from rewrite.split.prove.structure.check_resharding import prove_joints
from tests.rewrite.mutations import of_nodes
from tests.rewrite.split.prove.ops.prove_ops_test import decided
from tests.rewrite.split.rules.rules_test import CASES
from tests.rewrite.split.run_step import flat_graph

v1 = tf.compat.v1
NUM_MUTATIONS = 100
NUM_NEIGHBOURS = 20
COMMUTATIVE = ("AddN", "AddV2", "Mul")
NUM_SHARDS = 3
BATCH = 5
# A copy may lie elsewhere than it did; what a device string says is proven where it is written.
HARMLESS = ("_output_shapes",)


@pytest.fixture(scope="module", params=["cifar10", "rnnlm"])
def unsplit(request, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("zoo") / "model.pb")
    zoo.write(zoo.build(request.param, size="tiny", batch_size=BATCH), path)
    source = load(path, LoadOptions())
    flat = flatten(source.graph_def, source.feeds, source.fetches)
    properties = infer(flat)
    axes = {f"{spec.tensor.partition(':')[0]}:0": 0 for spec in flat.feeds}
    return flat, properties, decide(flat, properties, BATCH, axes)


@pytest.fixture(scope="module", params=["fixed", "open"])
def built(request, unsplit):
    flat, properties, decisions = unsplit
    decisions = opened(decisions) if request.param == "open" else decisions
    return flat, properties, decisions, build_step(flat, decisions, NUM_SHARDS)


def opened(decisions):
    return dataclasses.replace(decisions, is_open=True)


def test_a_shape_of_what_each_shard_has_for_itself_is_no_joint():
    """It stays itself, with the attributes that it has, and reads the first shard's copy."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [BATCH, 2], "x")
        growth = tf.exp(tf.reduce_sum(x, 0))
        fetches = [tf.tanh(x * growth).name, tf.raw_ops.Shape(input=growth, name="asked").name]
    flat = flat_graph(graph, {"x:0": np.zeros((BATCH, 2), np.float32)}, fetches)
    del flat.nodes["asked"].attr["out_type"]  # as a SavedModel does
    properties = infer(flat)
    decisions = decide(flat, properties, BATCH, {"x:0": 0})
    step = build_step(flat, decisions, NUM_SHARDS)
    (asked,) = (node for node in step.graph_def.node if node.name == "asked")
    assert asked.op == "Shape" and asked.input[0].partition(":")[0] == "Exp/shard_0"
    prove_joints(flat, decisions, step, NUM_SHARDS)


def test_what_is_built_is_proven(built):
    flat, _, decisions, step = built
    proof = prove_joints(flat, decisions, step, NUM_SHARDS)
    assert (proof.joins, proof.sums, proof.cuts) == (step.num_joins, step.num_sums, step.num_cuts)
    assert proof.whole_ops + proof.split_ops == len(built[0].nodes)
    assert proof.split_ops > 40


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_open", [False, True])
def test_what_is_built_of_each_rule_is_proven(name, is_open):
    flat, _, decisions, _ = decided(name)
    decisions = opened(decisions) if is_open else decisions
    step = build_step(flat, decisions, 2)
    proof = prove_joints(flat, decisions, step, 2)
    assert (proof.joins, proof.sums, proof.cuts) == (step.num_joins, step.num_sums, step.num_cuts)


def randomly_changed(step, rng):
    """A split step with one change, what kind of change it is, and of what."""
    nodes = list(step.graph_def.node)
    begin = rng.randrange(len(nodes) - NUM_NEIGHBOURS)
    some = type(step.graph_def)(node=nodes[begin : begin + NUM_NEIGHBOURS])
    kinds = changes_of(some, {node.name for node in nodes}, rng)
    kind = rng.choice(sorted(kinds))
    what, change = rng.choice(kinds[kind])
    change()
    graph_def = type(step.graph_def)(
        node=[*nodes[:begin], *some.node, *nodes[begin + NUM_NEIGHBOURS :]],
        library=step.graph_def.library,
        versions=step.graph_def.versions,
    )
    return dataclasses.replace(step, graph_def=graph_def), kind, what


def changes_of(graph_def, names, rng):
    """{kind: [(what, change)]} of what can be changed in some ops of a graph with these names."""
    changes = {}
    for kind, what, change in of_nodes(graph_def, rng):
        if not what.endswith(HARMLESS):
            changes.setdefault(kind, []).append((what, change))
    for node in graph_def.node:
        own = [i for i, name in enumerate(node.input) if not name.startswith("^")]
        if len(own) > 1 and node.input[own[0]] != node.input[own[-1]]:
            changes.setdefault("inputs swapped", []).append(
                (node.name, lambda n=node, i=own[0], j=own[-1]: swap(n, i, j))
            )
        for i, name in enumerate(node.input):
            other = name.replace("shard_0", "shard_1")
            is_there = other.removeprefix("^").partition(":")[0] in names
            # Both shards have two entries, so that their sizes are equal.
            is_size = node.op == "Shape" or (node.op, i) == ("Conv2DBackpropInput", 0)
            is_alike = "summed/" in name or is_size
            if other != name and is_there and not is_alike:
                changes.setdefault("another shard's part", []).append(
                    (f"{node.name} input {i}", lambda n=node, i=i, o=other: put(n, i, o))
                )
            if name.startswith("^"):
                changes.setdefault("control edge removed", []).append(
                    (f"{node.name} {name}", lambda n=node, i=i: n.input.pop(i))
                )
        if node.op == "AddN":
            changes.setdefault("term dropped", []).append((node.name, lambda n=node: drop(n)))
    return changes


def swap(node, i, j):
    node.input[i], node.input[j] = node.input[j], node.input[i]


def put(node, i, name):
    node.input[i] = name


def drop(node):
    node.input.pop()
    node.attr["N"].i -= 1


def test_each_of_a_hundred_random_changes_is_found(built):
    flat, _, decisions, step = built
    rng = random.Random(11)
    missed = []
    for _ in range(NUM_MUTATIONS):
        changed, kind, what = randomly_changed(step, rng)
        if changed.graph_def == step.graph_def or is_same_sum(changed.graph_def, step.graph_def):
            continue
        try:
            prove_joints(flat, decisions, changed, NUM_SHARDS)
            missed.append((kind, what))
        except RewriteError:
            pass
    assert not missed


def is_same_sum(one, other):
    """Whether only the order of what is added or multiplied differs."""
    return len(one.node) == len(other.node) and all(
        a == b or (a.op == b.op and a.op in COMMUTATIVE and sorted(a.input) == sorted(b.input))
        for a, b in zip(one.node, other.node, strict=True)
    )


def test_a_shape_keeps_what_it_waits_for():
    with tf.Graph().as_default() as graph:
        x = tf.tanh(v1.placeholder(tf.float32, (BATCH, 4), "x"))
        with tf.control_dependencies([tf.print("before")]):
            shape = tf.shape(x, out_type=tf.int64)
        with tf.control_dependencies([shape]):
            after = tf.identity(tf.reduce_sum(x), name="after")
    flat = flat_graph(graph, {"x:0": np.zeros((BATCH, 4), np.float32)}, [after.name])
    properties = infer(flat)
    decisions = decide(flat, properties, BATCH, {"x:0": 0})
    for each in (decisions, opened(decisions)):
        step = build_step(flat, each, 2)
        prove_joints(flat, each, step, 2)
