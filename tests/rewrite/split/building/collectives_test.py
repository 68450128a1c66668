"""Over several hosts, and over many devices, large sums and large weights go round."""

import dataclasses

import pytest
import tensorflow as tf

from graphs.building.shapes import infer_known
from graphs.names import RELAY, SHARD
from rewrite.pass_base import RewriteError
from rewrite.split.building import collectives as across_shards
from rewrite.split.building import step_tensors
from rewrite.split.building.build_step import build_step
from rewrite.split.building.collectives import ring_of
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
    shard_of,
)
from tests.rewrite.split.rules.run_rule import floats
from tests.rewrite.split.run_step import assert_same_steps, flat_graph

v1 = tf.compat.v1
FEEDS = {**IMAGES, "y:0": floats(BATCH, WIDTH) + 1.0}


def split_training(place_of_shard, sums_in_turn=False):
    """Two layers and their updates, in four shards; the biases are too small for all this."""
    with tf.Graph().as_default() as graph:
        x, y = (v1.placeholder(tf.float32, a.shape, n[:-2]) for n, a in FEEDS.items())
        hidden, variables = x, []
        for layer in range(2):
            weight = v1.get_variable(f"w{layer}", (WIDTH, WIDTH), use_resource=True)
            bias = v1.get_variable(f"b{layer}", WIDTH, use_resource=True)
            hidden = tf.nn.bias_add(tf.matmul(hidden, weight), bias)
            variables += [weight, bias]
        loss = tf.reduce_mean(tf.square(tf.tanh(hidden) - y), name="loss")
        gradients = zip(v1.gradients(loss, variables), variables, strict=True)
        train = v1.train.MomentumOptimizer(0.1, 0.9).apply_gradients(gradients, name="train")
    flat = flat_graph(graph, FEEDS, [loss.name, train.name])
    properties = infer_known(flat)
    decisions = decide(flat, properties, BATCH, dict.fromkeys(FEEDS, 0))
    decisions = dataclasses.replace(
        decisions, place_of_shard=place_of_shard, sums_in_turn=sums_in_turn
    )
    return flat, properties, decisions, build_step(flat, decisions, SHARDS)


def sums(step):
    """What adds the terms of some of the shards, each on one of their devices."""
    return [n for n in step.graph_def.node if "MatMul" in n.name and "/summed/" in n.name
            and n.op.startswith("Add")]  # fmt: skip


def relays(step):
    return [node for node in step.graph_def.node if RELAY.search(node.name)]


@pytest.mark.parametrize("sums_in_turn", [False, True])
@pytest.mark.parametrize("place_of_shard", [TWO_HOSTS, ONE_AND_THREE, THREE_HOSTS, SHARED])
def test_it_trains_as_before_and_is_proven(place_of_shard, sums_in_turn):
    flat, _, decisions, step = split_training(place_of_shard, sums_in_turn)
    # One after another only where a device holds the terms of several shards.
    is_in_turn = sums_in_turn and place_of_shard == SHARED
    assert {node.op for node in sums(step)} == {"AddV2" if is_in_turn else "AddN"}
    devices = len(set(place_of_shard))
    assert {node.op for node in relays(step)} == {"Identity"} and len(relays(step)) == 2 * devices
    proof = prove_joints(flat, decisions, step, SHARDS)
    assert proof.sums == step.num_sums
    assert_same_steps(flat, step, FEEDS, 1e-5, 1e-6)


def test_sums_and_weights_go_from_shard_to_shard_and_from_host_to_host():
    _, _, _, step = split_training(TWO_HOSTS)
    nodes = {node.name: node for node in step.graph_def.node}
    assert len(sums(step)) == 2  # of two weights: none of a bias
    for node in sums(step):
        assert {host_of(name) for name in node.input} == {host_of(node.name)}
        last = nodes[node.name.partition("/shard_")[0]]
        others = {shard_of(name) for name in last.input if name != node.name}
        assert node.name in last.input and len(others) == 2
        assert {shard // 2 for shard in others} == {1 - host_of(node.name)}
    assert {host_of(node.name) for node in sums(step)} == {0, 1}  # the variables' homes take turns
    for weight in ("MatMul", "MatMul_1"):
        mine = [n for n in relays(step) if n.name.startswith(f"{weight}/")]
        crossing = [n for n in mine if RELAY.search(n.input[0])
                    and host_of(n.input[0]) != host_of(n.name)]  # fmt: skip
        assert len(mine) == SHARDS and len(crossing) == 1
        for node in mine:
            readers = [n.name for n in nodes.values() if node.name in n.input]
            assert any(shard_of(name) == shard_of(node.name) for name in readers)


DIRECT = [(), tuple((0, device) for device in range(4)), tuple((h, h) for h in range(4))]


@pytest.mark.parametrize("place_of_shard", DIRECT)
def test_few_devices_of_one_host_or_of_as_many_are_sent_all_directly(place_of_shard):
    assert ring_of(place_of_shard) == {}
    plain, step = split_training(())[-1], split_training(place_of_shard)[-1]
    assert step.graph_def == plain.graph_def


def _sums(nodes):
    return [n for n in nodes if n.op == "AddN" and "MatMul" in n.name and SHARD.search(n.name)]


def a_shard_twice(nodes):
    _sums(nodes)[0].input[1] = _sums(nodes)[0].input[0]


def another_sum(nodes):
    first, second = (node.name for node in _sums(nodes))
    final = next(n for n in nodes if n.op == "AddN" and first in n.input)
    final.input[-1] = second


def another_weight(nodes):
    handed = [n for n in nodes if n.op == "Identity" and RELAY.search(n.name)]
    handed[0].input[0] = handed[-1].input[0]


def blocks_in_another_order(nodes):
    node = next(n for n in nodes if n.op == "ConcatV2" and "block_1" in n.input[1])
    node.input[0], node.input[1] = node.input[1], node.input[0]


def a_block_twice(nodes):
    node = next(n for n in nodes if n.op == "ConcatV2" and "block_1" in n.input[1])
    node.input[1] = node.input[0]


def cut_in_blocks(nodes):
    return [n for n in nodes if n.op == "SplitV" and "/rows" in n.name]


def blocks_of_other_sizes(nodes):
    sizes = next(n for n in cut_in_blocks(nodes) if n.name.endswith("/shard_1")).input[1]
    value = next(n for n in nodes if n.name == sizes).attr["value"].tensor
    rows = tf.make_ndarray(value) + [1, -1, 0]
    value.CopyFrom(tf.make_tensor_proto(rows, value.dtype))


def blocks_along_another_axis(nodes):
    axis = cut_in_blocks(nodes)[0].input[2]
    value = next(n for n in nodes if n.name == axis).attr["value"].tensor
    value.CopyFrom(tf.make_tensor_proto(1, value.dtype))


def blocks_cut_otherwise(nodes):
    node = cut_in_blocks(nodes)[1]
    node.input[1] = next(n.name for n in nodes if n.op == "Const" and n.name == node.input[2])


def another_block_of_a_term(nodes):
    node = next(n for n in nodes if n.op == "AddN" and "block_0" in n.name)
    node.input[0] = f"{node.input[0]}:1"


def a_block_instead_of_all(nodes):
    concat = next(n for n in nodes if n.op == "ConcatV2" and "block_1" in n.input[1])
    block, name = concat.input[0], concat.name
    reader = next(n for n in nodes if name in n.input)
    reader.input[list(reader.input).index(name)] = block


@pytest.mark.parametrize("change", [a_shard_twice, another_sum, another_weight])
def test_a_wrong_sum_or_weight_is_found(change):
    flat, _, decisions, step = split_training(TWO_HOSTS)
    change(step.graph_def.node)
    with pytest.raises(RewriteError):
        prove_joints(flat, decisions, step, SHARDS)


@pytest.fixture
def in_blocks(monkeypatch):
    """Weights of 40,000 bytes go in three blocks."""
    monkeypatch.setattr(step_tensors, "MOST_AT_ONCE", 30_000)
    monkeypatch.setattr(step_tensors, "BLOCK_BYTES", 15_000)


@pytest.mark.parametrize("sums_in_turn", [False, True])
@pytest.mark.parametrize("place_of_shard", [TWO_HOSTS, THREE_HOSTS])
def test_very_large_tensors_go_in_blocks_of_rows(in_blocks, place_of_shard, sums_in_turn):
    flat, _, decisions, step = split_training(place_of_shard, sums_in_turn)
    assert len(relays(step)) == 2 * SHARDS * 3
    assert len(cut_in_blocks(step.graph_def.node)) == 2 * (1 + SHARDS)
    proof = prove_joints(flat, decisions, step, SHARDS)
    assert proof.sums == step.num_sums
    assert_same_steps(flat, step, FEEDS, 1e-5, 1e-6)


def test_what_is_needed_first_goes_in_smaller_blocks(monkeypatch):
    monkeypatch.setattr(across_shards, "FIRST_VARIABLES", 1)
    monkeypatch.setattr(step_tensors, "FIRST_AT_ONCE", 30_000)
    monkeypatch.setattr(step_tensors, "FIRST_BLOCK_BYTES", 15_000)
    flat, _, decisions, step = split_training(TWO_HOSTS)
    cut = cut_in_blocks(step.graph_def.node)
    assert len(cut) == 1 + SHARDS  # the first weight, and each shard's gradient of it
    assert all("MatMul/" in node.name or "MatMul_grad" in node.name for node in cut)
    assert prove_joints(flat, decisions, step, SHARDS).sums == step.num_sums
    assert_same_steps(flat, step, FEEDS, 1e-5, 1e-6)


@pytest.mark.parametrize(
    "change",
    [blocks_in_another_order, a_block_twice, blocks_of_other_sizes,
     blocks_along_another_axis, blocks_cut_otherwise,
     another_block_of_a_term, a_block_instead_of_all, another_weight],
)  # fmt: skip
def test_a_wrong_block_is_found(in_blocks, change):
    flat, _, decisions, step = split_training(TWO_HOSTS)
    change(step.graph_def.node)
    with pytest.raises(RewriteError):
        prove_joints(flat, decisions, step, SHARDS)


@pytest.mark.parametrize("is_in_blocks", [False, True])
def test_many_devices_of_one_host_hand_on_to_each_other(monkeypatch, is_in_blocks):
    monkeypatch.setattr(across_shards, "MOST_DIRECT", 2)
    if is_in_blocks:
        monkeypatch.setattr(step_tensors, "MOST_AT_ONCE", 30_000)
        monkeypatch.setattr(step_tensors, "BLOCK_BYTES", 15_000)
    # Two shards of one device read what the first is handed.
    flat, _, decisions, step = split_training(((0, 0), (0, 1), (0, 2), (0, 0)))
    handed = {SHARD.search(node.name)[1] for node in relays(step)}
    assert handed == {"0", "1", "2"}
    assert prove_joints(flat, decisions, step, SHARDS).sums == step.num_sums
    assert_same_steps(flat, step, FEEDS, 1e-5, 1e-6)


def test_a_step_of_any_batch_size_has_no_blocks(in_blocks):
    flat, _, decisions, _ = split_training(TWO_HOSTS)
    opened = dataclasses.replace(decisions, is_open=True)
    step = build_step(flat, opened, SHARDS)
    assert relays(step) and not any("/block_" in node.name for node in step.graph_def.node)


def test_tensorflow_sends_between_hosts_once():
    _, _, _, step = split_training(TWO_HOSTS)
    graph_def = v1.GraphDef()
    graph_def.CopyFrom(step.graph_def)
    for node in graph_def.node:  # shards 0 and 1 on the first host, with all that is whole
        device = shard_of(node.name) if SHARD.search(node.name) else 0
        node.device = f"/device:CPU:{device}"
    crossing = _sent_between(graph_def, step.fetches)
    weights = [name for name in crossing if "MatMul" in name and "ReadVariableOp" in name]
    gradients = [name for name in crossing if "MatMul" in name and "gradients" in name]
    biases = [name for name in crossing if "BiasAdd" in name and "ReadVariableOp" in name]
    # The second variable's home is on the second host, but here it lies with all that is whole.
    assert sum("MatMul/ReadVariableOp" in name for name in weights) == 1
    assert len(gradients) <= 3 and any("/summed/shard_" in name for name in gradients)
    assert len(biases) == 4  # small ones go to each device


def _sent_between(graph_def, fetches):
    """The tensors that TensorFlow sends from one pair of devices to the other in a step."""
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(graph_def, name="")
        options, ran = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        config = v1.ConfigProto(device_count={"CPU": SHARDS})
        with v1.Session(graph=graph, config=config) as session:
            for op in graph.get_operations():
                if op.type == "VarHandleOp":
                    zero = tf.zeros(op.get_attr("shape"), op.get_attr("dtype"))
                    session.run(tf.raw_ops.AssignVariableOp(resource=op.outputs[0], value=zero))
            session.run(list(fetches), FEEDS, options, ran)
    sent = [node for part in ran.partition_graphs for node in part.node if node.op == "_Send"]
    ends = [
        (n.attr["send_device"].s.decode()[-1], n.attr["recv_device"].s.decode()[-1]) for n in sent
    ]
    crosses = [(one in "01") != (other in "01") for one, other in ends]
    return [n.input[0] for n, across in zip(sent, crosses, strict=True) if across]


@pytest.mark.parametrize("width", [2000, 500])
def test_an_input_goes_to_each_host_once_and_is_cut_there_unless_it_is_small(width):
    feeds = {"x:0": floats(BATCH, width)}
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [BATCH, width], "x")
        fetch = tf.reduce_sum(tf.tanh(x), name="sum")
    flat = flat_graph(graph, feeds, [fetch.name])
    properties = infer_known(flat)
    decisions = decide(flat, properties, BATCH, {"x:0": 0})
    decisions = dataclasses.replace(decisions, place_of_shard=TWO_HOSTS)
    step = build_step(flat, decisions, SHARDS)
    nodes = {node.name: node for node in step.graph_def.node}
    cuts = [nodes[nodes[f"Tanh/shard_{m}"].input[0].partition(":")[0]] for m in range(SHARDS)]
    wanted = [f"x/relayed/shard_{m}" if width == 2000 else "x" for m in range(SHARDS)]
    assert [cut.input[0].partition(":")[0] for cut in cuts] == wanted
    proof = prove_joints(flat, decisions, step, SHARDS)
    assert proof.cuts == step.num_cuts == 1
    assert_same_steps(flat, step, feeds, 1e-5, 1e-6)
