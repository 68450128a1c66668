"""Between hosts each sends the others its own sum of a small tensor, which all shards wait for."""

import dataclasses

import pytest
import tensorflow as tf

from graphs.building.shapes import infer_known
from rewrite.pass_base import RewriteError
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import decide
from rewrite.split.prove.structure.check_resharding import prove_joints
from tests.rewrite.split.building.shards_on_hosts import (
    BATCH,
    IMAGES,
    ONE_AND_THREE,
    SHARDS,
    SHARED,
    THREE_HOSTS,
    TWO_HOSTS,
    WIDTH,
    host_of,
)
from tests.rewrite.split.run_step import assert_same_steps, flat_graph

v1 = tf.compat.v1


def split_normalisation(place_of_shard):
    """What is less its mean over the batch: a small sum that each shard waits for."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, WIDTH), "x")
        fetch = tf.reduce_sum(tf.tanh(x - tf.reduce_mean(x, axis=0)), axis=1, name="out")
    flat = flat_graph(graph, IMAGES, [fetch.name])
    properties = infer_known(flat)
    decisions = decide(flat, properties, BATCH, {"x:0": 0})
    decisions = dataclasses.replace(decisions, place_of_shard=place_of_shard)
    return flat, properties, decisions, build_step(flat, decisions, SHARDS)


@pytest.mark.parametrize("place_of_shard", [TWO_HOSTS, ONE_AND_THREE, THREE_HOSTS, SHARED, ()])
def test_small_sums_cross_between_hosts_once_and_are_proven(place_of_shard):
    flat, _, decisions, step = split_normalisation(place_of_shard)
    proof = prove_joints(flat, decisions, step, SHARDS)
    assert proof.sums == step.num_sums == 1
    assert_same_steps(flat, step, IMAGES, 1e-5, 1e-6)


def test_each_host_sends_its_own_sum_and_adds_them_once():
    _, _, _, step = split_normalisation(TWO_HOSTS)
    nodes = {node.name: node for node in step.graph_def.node}
    added = [name for name, node in nodes.items() if node.op == "AddN" and "/summed" in name]
    own, whole = ([n for n in added if ("of_host" in n) == is_own] for is_own in (True, False))
    assert len(own) == len(whole) == 2
    for name in own:
        assert {host_of(term) for term in nodes[name].input} == {host_of(name)}
    for name in whole:
        assert list(nodes[name].input) == own  # in one order, so that all shards have the same
        readers = [reader for reader, node in nodes.items() if name in node.input]
        assert {host_of(reader) for reader in readers} == {host_of(name)} and len(readers) == 2


def another_sum_of_a_host(nodes):
    whole = next(n for n in nodes if n.op == "AddN" and "of_host" in n.input[0])
    whole.input[1] = whole.input[0]


def a_term_of_another_host(nodes):
    first, second = [n for n in nodes if n.op == "AddN" and "of_host" in n.name]
    first.input[0] = second.input[0]


def a_host_that_is_left_out(nodes):
    whole = next(n for n in nodes if n.op == "AddN" and "of_host" in n.input[0])
    del whole.input[1]
    whole.attr["N"].i = 1


@pytest.mark.parametrize(
    "change", [another_sum_of_a_host, a_term_of_another_host, a_host_that_is_left_out]
)
def test_a_wrong_sum_of_a_host_is_found(change):
    flat, _, decisions, step = split_normalisation(TWO_HOSTS)
    change(step.graph_def.node)
    with pytest.raises(RewriteError):
        prove_joints(flat, decisions, step, SHARDS)
