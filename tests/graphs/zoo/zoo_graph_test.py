"""Every benchmark graph trains, has static shapes and a part for every op."""

import numpy as np
import pytest
import tensorflow as tf

from graphs import zoo
from graphs.errors import UsageError
from graphs.zoo.expert import PART_ATTRIBUTE, PARTS_ATTRIBUTE
from graphs.zoo.zoo_graph import variable_bytes
from tests.graphs.zoo.tiny_graphs import feeds_of, tiny

# An internal scratch output of batch normalisation whose size is the kernel's own affair.
_OPAQUE_OUTPUT = {"FusedBatchNormV3": 5}


@pytest.mark.parametrize("name", zoo.NAMES)
def test_two_steps_train(name: str) -> None:
    graph = tiny(name)
    with graph.graph.as_default():
        trainable = tf.compat.v1.trainable_variables()
    with tf.compat.v1.Session(graph=graph.graph) as session:
        session.run(graph.init_op)
        before = session.run(trainable)
        feeds = feeds_of(graph)
        losses = [session.run([graph.loss, graph.train_op], feeds)[0] for _ in range(2)]
        after = session.run(trainable)
    assert np.isfinite(losses).all()
    assert losses[0] != losses[1]
    changed = [not np.array_equal(old, new) for old, new in zip(before, after, strict=True)]
    assert sum(changed) > 0.9 * len(changed)
    assert graph.num_parameters == sum(value.size for value in before)


@pytest.mark.parametrize("name", zoo.NAMES)
def test_shapes_are_static_and_feeds_complete(name: str) -> None:
    graph = tiny(name)
    ops = zoo.step_ops(graph)
    unknown = [
        tensor.name
        for op in graph.graph.get_operations()
        if op.name in ops
        for index, tensor in enumerate(op.outputs)
        if not tensor.shape.is_fully_defined() and _OPAQUE_OUTPUT.get(op.type) != index
    ]
    assert unknown == []
    placeholders = {
        (op.outputs[0].name, op.outputs[0].dtype.name, tuple(op.outputs[0].shape))
        for op in graph.graph.get_operations()
        if op.type == "Placeholder"
    }
    assert {(feed.tensor, feed.dtype, feed.shape) for feed in graph.feeds} == placeholders
    assert {feed.tensor.partition(":")[0] for feed in graph.feeds} <= ops


@pytest.mark.parametrize("name", zoo.NAMES)
def test_forward_and_gradient_ops_cover_all_parts(name: str) -> None:
    graph = tiny(name)
    needed = zoo.step_ops(graph)
    nodes = [node for node in graph.graph.as_graph_def().node if node.name in needed]
    (num_parts,) = {node.attr[PARTS_ATTRIBUTE].i for node in nodes}
    everywhere = set(range(num_parts))
    gradients = {n.attr[PART_ATTRIBUTE].i for n in nodes if n.name.startswith("gradients/")}
    updates = {n.attr[PART_ATTRIBUTE].i for n in nodes if n.name.startswith("apply/update_")}
    assert gradients == everywhere
    assert updates == everywhere
    on_cpu = {n.op for n in nodes if n.attr[PART_ATTRIBUTE].i == -1}
    assert on_cpu == {"Placeholder", "NoOp"}
    assert not any(node.device for node in nodes)


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    # He et al.'s network in torchvision and keras.applications; the paper's 26 tables of Criteo
    # Kaggle, 33,762,577 rows of 128, and the perceptrons' 2,368,897.
    [("resnet50", 25_557_032), ("dlrm", 33_762_577 * 128 + 2_368_897)],
)
def test_published_size_has_the_known_parameters(name: str, num_parameters: int) -> None:
    assert zoo.build(name).num_parameters == num_parameters


@pytest.mark.parametrize(
    ("name", "chosen", "message"),
    [
        ("nmt", {"num_layers": 3}, "wanted an even number"),
        ("nasnet", {"hidden_size": 50}, "wanted a multiple of 6, at least 48"),
        ("transformer", {"hidden_size": 100}, "wanted a multiple of 64"),
        ("inception_v3", {"image_size": 20}, "choose values that go together"),
    ],
)
def test_values_that_do_not_go_together(name: str, chosen: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        zoo.build(name, "tiny", **chosen)
    assert message in str(caught.value)


def test_op_table_counts_what_a_step_needs() -> None:
    (row,) = zoo.op_table(["rnnlm"], size="tiny")
    graph = tiny("rnnlm")
    ops = {op.name: op for op in graph.graph.get_operations()}
    kept = tf.compat.v1.graph_util.extract_sub_graph(graph.graph.as_graph_def(), ["train_op"])
    assert ops.keys() > {node.name for node in kept.node}
    assert row.pop("build_seconds") > 0
    # Words 20 x 8; two cells of (16 + 1) x 32; softmax (8 + 1) x 20.
    assert row == {
        "name": "rnnlm",
        "num_ops": len(kept.node),
        "num_parameters": 160 + 2 * 544 + 180,
        "variable_bytes": 4 * (160 + 2 * 544 + 180),
        "published_num_ops": 8943,
    }
    assert zoo.op_table(["rnnlm:num_layers=1"], "tiny")[0]["published_num_ops"] is None


def test_adam_slots_count_as_variable_bytes() -> None:
    graph = tiny("transformer")
    beta_powers = 2 * 4
    assert variable_bytes(graph) == 3 * 4 * graph.num_parameters + beta_powers
