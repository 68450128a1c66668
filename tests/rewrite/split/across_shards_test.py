"""Over several hosts large sums are made on each host first, and large weights handed on there."""

import dataclasses

import pytest
import tensorflow as tf

from graphs.building.shapes import infer_known
from graphs.names import HOST, SHARD
from rewrite.pass_base import RewriteError
from rewrite.split.across_shards import shards_of_hosts
from rewrite.split.build_step import build_step
from rewrite.split.decide import decide
from rewrite.split.prove_joints import prove_joints
from tests.rewrite.split.run_rule import floats
from tests.rewrite.split.run_step import assert_same_steps, flat_graph

v1 = tf.compat.v1
BATCH, SHARDS, WIDTH = 8, 4, 100
TWO_HOSTS = (0, 0, 1, 1)
FEEDS = {"x:0": floats(BATCH, WIDTH), "y:0": floats(BATCH, WIDTH) + 1.0}


def split_training(host_of_shard, sums_in_turn=False):
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
        decisions, host_of_shard=host_of_shard, sums_in_turn=sums_in_turn
    )
    return flat, properties, decisions, build_step(flat, properties, decisions, SHARDS)


def of_hosts(step):
    return [node for node in step.graph_def.node if HOST.search(node.name)]


@pytest.mark.parametrize("sums_in_turn", [False, True])
@pytest.mark.parametrize("host_of_shard", [TWO_HOSTS, (0, 1, 0, 0), (0, 1, 2, 0)])
def test_it_trains_as_before_and_is_proven(host_of_shard, sums_in_turn):
    flat, properties, decisions, step = split_training(host_of_shard, sums_in_turn)
    assert {node.op for node in of_hosts(step)} == {"Identity", "AddV2" if sums_in_turn else "AddN"}
    proof = prove_joints(flat, properties, decisions, step, SHARDS)
    assert proof.sums == step.num_sums
    assert_same_steps(flat, step, FEEDS, 1e-5, 1e-6)


def test_each_host_makes_one_term_of_a_large_sum_and_reads_a_large_weight_once():
    _, _, _, step = split_training(TWO_HOSTS)
    nodes = {node.name: node for node in step.graph_def.node}
    sums = [node for node in of_hosts(step) if node.op == "AddN"]
    assert len(sums) == 4  # of two weights on two hosts: none of a bias
    for node in sums:
        host = int(HOST.search(node.name)[1])
        shards = {int(SHARD.search(name)[1]) for name in node.input}
        assert shards == {2 * host, 2 * host + 1}
        whole = nodes[HOST.sub("/summed", node.name)]
        assert node.name in whole.input and len(whole.input) == 2
    relays = [node.name for node in of_hosts(step) if node.op == "Identity"]
    assert len(relays) == 4
    for name in relays:
        readers = [node.name for node in nodes.values() if name in node.input]
        shards = {int(SHARD.search(reader)[1]) // 2 for reader in readers}
        assert shards == {int(HOST.search(name)[1])}


@pytest.mark.parametrize("host_of_shard", [(), (0, 0, 0, 0), (0, 1, 2, 3)])
def test_nothing_changes_on_one_host_or_where_each_shard_has_its_own(host_of_shard):
    assert shards_of_hosts(host_of_shard) == {}
    plain, step = split_training(())[-1], split_training(host_of_shard)[-1]
    assert step.graph_def == plain.graph_def


def a_shard_twice(nodes):
    node = next(n for n in nodes if n.op == "AddN" and HOST.search(n.name))
    node.input[1] = node.input[0]


def another_hosts_sum(nodes):
    sums = [n.name for n in nodes if n.op == "AddN" and HOST.search(n.name)]
    final = next(n for n in nodes if n.op == "AddN" and sums[0] in n.input)
    final.input[1] = final.input[0]


def another_weight(nodes):
    relays = [n for n in nodes if n.op == "Identity" and HOST.search(n.name)]
    relays[0].input[0] = relays[-1].input[0]


@pytest.mark.parametrize("change", [a_shard_twice, another_hosts_sum, another_weight])
def test_a_wrong_sum_or_weight_is_found(change):
    flat, properties, decisions, step = split_training(TWO_HOSTS)
    change(step.graph_def.node)
    with pytest.raises(RewriteError):
        prove_joints(flat, properties, decisions, step, SHARDS)


def test_tensorflow_sends_between_hosts_once():
    _, _, _, step = split_training(TWO_HOSTS)
    graph_def = v1.GraphDef()
    graph_def.CopyFrom(step.graph_def)
    for node in graph_def.node:  # shards 0 and 1 on the first host, with all that is whole
        shard, host = SHARD.search(node.name), HOST.search(node.name)
        device = int(shard[1]) if shard else 2 * int(host[1]) if host else 0
        node.device = f"/device:CPU:{device}"
    crossing = _sent_between(graph_def, step.fetches)
    weights = [name for name in crossing if "MatMul" in name and "ReadVariableOp" in name]
    gradients = [name for name in crossing if "MatMul" in name and "gradients" in name]
    biases = [name for name in crossing if "BiasAdd" in name and "ReadVariableOp" in name]
    assert sorted(weights) == ["MatMul/ReadVariableOp", "MatMul_1/ReadVariableOp"]
    assert len(gradients) == 2 and all(HOST.search(name) for name in gradients)
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
    decisions = dataclasses.replace(decisions, host_of_shard=TWO_HOSTS)
    step = build_step(flat, properties, decisions, SHARDS)
    nodes = {node.name: node for node in step.graph_def.node}
    cuts = [nodes[nodes[f"Tanh/shard_{m}"].input[0].partition(":")[0]] for m in range(SHARDS)]
    wanted = [f"x/relayed/host_{host}" for host in TWO_HOSTS] if width == 2000 else ["x"] * SHARDS
    assert [cut.input[0].partition(":")[0] for cut in cuts] == wanted
    proof = prove_joints(flat, properties, decisions, step, SHARDS)
    assert proof.cuts == step.num_cuts == 1
    assert_same_steps(flat, step, feeds, 1e-5, 1e-6)
