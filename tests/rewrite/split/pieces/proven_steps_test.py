"""Steps with weights in pieces compute what they did: by their structure, and by running them."""

from __future__ import annotations

import copy
import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from graphs.building.shapes import infer_known
from graphs.loading.feeds import feeds_of_opened
from rewrite.pass_base import RewriteError
from rewrite.split.building.build_step import build_step
from rewrite.split.functions import Bodies
from rewrite.split.pieces.choose import PiecesChooser
from rewrite.split.pieces.open_sizes import with_open_sizes
from rewrite.split.prove.runs.child import compare
from rewrite.split.prove.runs.compare_runs import request_of
from rewrite.split.prove.structure.check_resharding import other_sizes, prove_joints
from rewrite.split.reading.merge_reads import merge_reads
from rewrite.split.reading.state_order import require_state_order, with_state_order
from rewrite.split.states import Sharded
from tests.rewrite.split.traced_steps import flat_step
from tests.rewrite.split.training_steps_test import BATCH, GROUPS, traced

QUICK, NUM_STEPS, TOGETHER = 4, 100, 25
PIECES = 2
GROUPS_OF_SEEDS = [
    pytest.param(range(QUICK)),
    *(
        pytest.param(range(first, first + TOGETHER), marks=pytest.mark.fuzz)
        for first in range(0, NUM_STEPS, TOGETHER)
    ),
]


def in_pieces(flat):
    """The step that is cut, what became of its ops, and the step in pieces; None for none."""
    flat = with_state_order(merge_reads(flat))
    decisions = PiecesChooser(flat, infer_known(flat), PIECES, {}).found()
    return decisions and (flat, decisions, build_step(flat, decisions, PIECES, key="tfplace/test"))


def differing(flat, decisions, step):
    joints = prove_joints(flat, decisions, step, PIECES)
    require_state_order(flat, step, decisions.pieces)
    feeds = feeds_of_opened(flat, decisions.properties, flat.feeds, seed=0)
    runs = compare(request_of(flat, decisions, step, joints.exact, feeds))
    return [*runs.differing, *([runs.why_not] if runs.why_not else [])]


def random_dense_step(seed):
    """A training step of random layers, some behind each other, and a random optimizer."""
    rng = np.random.default_rng(seed)
    width, weights = 8, []

    def weight(*shape):
        value = (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        weights.append(tf.Variable(value, name=f"w_{len(weights)}"))
        return weights[-1]

    def dense(bias=True, transposed=False):
        kernel, offset = weight(width, width), weight(width) if bias else None
        product = functools.partial(tf.matmul, b=kernel, transpose_b=transposed)
        return lambda x: product(x) + offset if bias else product(x)

    def normed():
        scale = weight(width)
        return lambda x: scale * (x - tf.reduce_mean(x, 1, keepdims=True))

    def gated():
        kernel = weight(width, 4 * width)

        def layer(x):
            i, j, f, o = tf.split(x @ kernel, 4, axis=1)
            return tf.sigmoid(i) * tf.tanh(j) + tf.sigmoid(f) * tf.tanh(o)

        return layer

    def attention():
        parts = [weight(width, width) for _ in range(3)]

        def layer(x):
            q, k, v = (tf.reshape(x @ p, [-1, 4, width // 4]) for p in parts)
            return tf.reshape(tf.nn.softmax(q @ tf.transpose(k, [0, 2, 1])) @ v, [-1, width])

        return layer

    def residual():
        inner = dense()
        return lambda x: x + inner(x)

    kinds = {
        "dense": dense,
        "no bias": lambda: dense(bias=False),
        "transposed": lambda: dense(transposed=True),
        "normed": normed,
        "gated": gated,
        "attention": attention,
        "residual": residual,
        "relu": lambda: tf.nn.relu,
        "tanh": lambda: tf.tanh,
        "softmax": lambda: tf.nn.softmax,
    }
    words = [str(word) for word in rng.choice(list(kinds), rng.integers(2, 7))]
    layers = [kinds["dense"](), *(kinds[word]() for word in words), weight(width, 3)]
    optimizers = [
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
        lambda: keras.optimizers.Adam(0.1, amsgrad=True),
        lambda: keras.optimizers.Adagrad(0.1, global_clipnorm=0.1),
        lambda: keras.optimizers.RMSprop(0.1, centered=True),
        lambda: tf_keras.optimizers.Nadam(0.1),
    ]
    optimizer = optimizers[rng.integers(len(optimizers))]()
    optimizer.build(weights)

    def step(x, y):
        with tf.GradientTape() as tape:
            h = x
            for layer in layers[:-1]:
                h = layer(h)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, h @ layers[-1]))
            loss += 0.01 * tf.add_n([tf.nn.l2_loss(w) for w in weights[:2]])
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    specs = [tf.TensorSpec((BATCH, width), tf.float32, "x"), tf.TensorSpec((BATCH,), tf.int32, "y")]
    return words, flat_step(step, specs, BATCH)


def step_with_tables():
    """A training step with a table for each way to change rows of it."""
    raw, rng = tf.raw_ops, np.random.default_rng(0)
    kept = {"lr": 0.1}
    decayed = {**kept, "rho": 0.9, "momentum": 0.5, "epsilon": 1e-3}
    bounded = {**kept, "l1": 0.01, "l2": 0.01}
    updates = {
        "Adadelta": (("accum", "accum_update"), {**kept, "rho": 0.9, "epsilon": 1e-3}),
        "Adagrad": (("accum",), kept),
        "AdagradV2": (("accum",), {**kept, "epsilon": 1e-3}),
        "CenteredRMSProp": (("mg", "ms", "mom"), decayed),
        "Ftrl": (("accum", "linear"), {**bounded, "lr_power": -0.5}),
        "FtrlV2": (("accum", "linear"), {**bounded, "l2_shrinkage": 0.1, "lr_power": -0.5}),
        "KerasMomentum": (("accum",), {**kept, "momentum": 0.5}),
        "Momentum": (("accum",), {**kept, "momentum": 0.5}),
        "ProximalAdagrad": (("accum",), bounded),
        "ProximalGradientDescent": ((), {**bounded, "alpha": bounded["lr"]}),
        "RMSProp": (("ms", "mom"), decayed),
    }
    updates["ProximalGradientDescent"][1].pop("lr")
    scatters = ["Add", "Sub", "Update", "Mul", "Div", "Min", "Max"]
    width, rows = 4, 10

    def table(name, filled=None):
        value = rng.normal(size=(rows, width)) if filled is None else np.full((rows, width), filled)
        return tf.Variable(value.astype(np.float32), name=name)

    tables = [table(f"table_{op}") for op in (*updates, *scatters)]
    slots = {
        op: {key: table(f"{op}_{key}", 0.0 if key == "mg" else 1.0) for key in keys}
        for op, (keys, _) in updates.items()
    }
    last = tf.Variable(rng.normal(size=(width, 1)).astype(np.float32), name="last")

    def step(ids):
        with tf.GradientTape() as tape:
            read = [tf.nn.embedding_lookup(each, ids) for each in tables]
            loss = tf.reduce_mean(tf.tanh(tf.add_n([tf.sin(each) for each in read]) @ last))
        *of_rows, whole = tape.gradient(loss, [*tables, last])
        for each, name, slices in zip(tables, (*updates, *scatters), of_rows, strict=True):
            if name in updates:
                grad = {"grad": slices.values, "indices": slices.indices}
                for slot in slots[name].values():
                    slot.read_value()  # so that the function knows of it
                held = {key: slot.handle for key, slot in slots[name].items()}
                change = getattr(raw, f"ResourceSparseApply{name}")
                change(var=each.handle, **held, **updates[name][1], **grad)
            else:
                change = getattr(raw, f"ResourceScatter{name}")
                change(resource=each.handle, indices=ids, updates=1.5 + read[0])
        last.assign_sub(0.1 * whole)
        return loss

    return flat_step(step, [tf.TensorSpec((BATCH,), tf.int32, "ids")], BATCH)


def test_tables_are_cut_by_columns_whatever_changes_their_rows():
    cut = in_pieces(step_with_tables())
    assert cut is not None
    flat, decisions, step = cut
    assert [state.axis for state in decisions.pieces.values()].count(1) == 18 + 16
    assert not differing(flat, decisions, step)


@pytest.mark.parametrize("optimizer", [keras.optimizers.Adam, keras.optimizers.Adagrad])
def test_a_table_that_keras_reads_whole_is_cut_by_columns(optimizer):
    """Its Embedding takes rows of the value; the optimizer makes the gradient of these dense."""
    shape = (10, 4)
    table, kernel = (tf.Variable(tf.random.stateless_normal(s, (0, 1))) for s in (shape, (4, 2)))
    weights, optimizer = [table, kernel], optimizer(0.1)
    optimizer.build(weights)

    def step(ids):
        with tf.GradientTape() as tape:
            rows = tf.gather(tf.convert_to_tensor(table), ids)
            loss = tf.reduce_mean(tf.tanh(rows @ kernel) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    cut = in_pieces(flat_step(step, [tf.TensorSpec((BATCH,), tf.int32, "ids")], BATCH))
    flat, decisions, made = cut
    columns = [name for name, state in decisions.pieces.items() if state.axis == 1]
    assert {tuple(d.size for d in flat.nodes[n].attr["shape"].shape.dim) for n in columns} == {
        shape
    }
    assert len(columns) >= 2 and not differing(flat, decisions, made)


@pytest.mark.parametrize(("shape", "is_any"), [([None, 3], True), ([None, None, 3], False)])
def test_features_side_by_side_are_in_blocks_at_any_one_size(shape, is_any):
    """Each piece has columns of each table. A reshape leaves one size to TensorFlow, not two."""
    tables = [tf.Variable(tf.random.stateless_normal([400, 8], (0, n))) for n in range(3)]
    kernel = tf.Variable(tf.random.stateless_normal([24, 60], (0, 3)))

    def step(ids):
        with tf.GradientTape() as tape:
            rows = [tf.nn.embedding_lookup(t, ids[..., n]) for n, t in enumerate(tables)]
            joined = tf.concat(rows, -1) * 2.0
            loss = tf.reduce_mean(tf.tanh(tf.reshape(joined, [-1, 24]) @ kernel) ** 2)
        *by_rows, dense = tape.gradient(loss, [*tables, kernel])
        for table, gradient in zip(tables, by_rows, strict=True):
            table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        kernel.assign_sub(0.1 * dense)
        return loss

    flat = flat_step(step, [tf.TensorSpec(shape, tf.int32, "ids")], BATCH)
    flat = with_state_order(merge_reads(flat))
    decisions = PiecesChooser(flat, infer_known(flat), PIECES, {}).found()
    states = decisions.state_of_tensor.values()
    assert any(isinstance(each, Sharded) and each.outer == 3 for each in states)
    axes = {spec.tensor: range(len(shape) - 1) for spec in flat.feeds}
    opened = with_open_sizes(flat, decisions, axes, {}, Bodies(flat.graph_def))
    assert opened.is_open == is_any
    made = build_step(flat, opened, PIECES, key="tfplace/test")
    assert not differing(flat, opened, made)
    others = list(other_sizes(flat, opened, PIECES))
    assert len(others) == is_any
    for other in others:
        prove_joints(flat, other, made, PIECES)


@pytest.mark.parametrize(
    ("width", "gates", "cut"),
    [(48, 4, Sharded(1, 4, 6)), (48, 1, Sharded(1, 1, 24)), (4, 1, Sharded(0, 1, 4))],
)
def test_what_makes_more_features_than_it_reads_is_cut_along_these(width, gates, cut):
    """To join what it reads, a table's columns, is less than to send sums of all that it makes."""
    table = tf.Variable(tf.random.stateless_normal([400, 8], (0, 0)), name="table")
    kernel = tf.Variable(tf.random.stateless_normal([8, width], (0, 1)), name="kernel")

    def step(ids):
        with tf.GradientTape() as tape:
            parts = tf.split(tf.nn.embedding_lookup(table, ids) @ kernel, gates, 1)
            loss = tf.add_n([tf.reduce_mean(tf.tanh(part) ** 2) for part in parts])
        by_row, dense = tape.gradient(loss, [table, kernel])
        table.scatter_sub(tf.IndexedSlices(0.1 * by_row.values, by_row.indices))
        kernel.assign_sub(0.1 * dense)
        return loss

    made = in_pieces(flat_step(step, [tf.TensorSpec([None], tf.int32, "ids")], BATCH))
    assert {*made[1].pieces.values()} == {Sharded(1, 1, 4), cut}
    assert not differing(*made)


@pytest.mark.parametrize("in_conditional", [False, True])
def test_weights_that_a_conditional_updates_are_not_free(in_conditional):
    kernel = tf.Variable(tf.zeros([8, 8]), name="kernel")

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ kernel) ** 2)
        gradient = tape.gradient(loss, kernel)
        if in_conditional:
            tf.cond(loss < 9.0, lambda: kernel.assign_sub(gradient), lambda: kernel.assign(kernel))
        else:
            kernel.assign_sub(gradient)
        return loss

    flat = with_state_order(merge_reads(flat_step(step, [tf.TensorSpec([64, 8], tf.float32)], 64)))
    chooser = PiecesChooser(flat, infer_known(flat), PIECES, {})
    assert (chooser.found() is None) == in_conditional
    assert chooser.is_any_free == (not in_conditional)


@pytest.mark.parametrize("names", GROUPS, ids=", ".join)
def test_our_own_steps(names):
    made = in_pieces(traced(names, BATCH))
    assert made and len(made[1].pieces) > 1
    assert not differing(*made)


@pytest.mark.parametrize("seeds", GROUPS_OF_SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop}")
def test_random_steps(seeds):
    said, num_cut = {}, 0
    for seed in seeds:
        words, flat = random_dense_step(seed)
        if (made := in_pieces(flat)) is not None:
            num_cut += 1
            if alarms := differing(*made):
                said[seed] = words, alarms
    assert not said
    assert num_cut > 0.3 * len(seeds)


@pytest.fixture(scope="module")
def two_layers():
    made = in_pieces(traced(["clipped by value"], BATCH))
    assert made
    return made


def changed(step, change):
    """The same step with a change of its nodes, by name."""
    graph_def = copy.deepcopy(step.graph_def)
    change({node.name: node for node in graph_def.node}, graph_def)
    return dataclasses.replace(step, graph_def=graph_def)


def swap_pieces(nodes, graph_def):
    of_piece = [n for n in nodes.values() if n.op == "ReadVariableOp" and "/shard_" in n.name]
    first, second = of_piece[:2]
    first.input[0], second.input[0] = second.input[0], first.input[0]


def do_not_wait(nodes, graph_def):
    for node in nodes.values():
        kept = [name for name in node.input if name != "^split/weights_in_pieces"]
        if len(kept) < len(node.input):
            node.input[:] = kept
            return


def convert_otherwise(nodes, graph_def):
    call = nodes["split/weights_in_pieces"]
    call.input[0], call.input[1] = call.input[1], call.input[0]


def change_the_function(nodes, graph_def):
    [main] = [f for f in graph_def.library.function if f.signature.name == "tfplace_into_pieces"]
    main.node_def[-1].name += "_other"


def share_a_piece(nodes, graph_def):
    first, second = [n for n in nodes.values() if n.op == "VarHandleOp" and "/shard_" in n.name][:2]
    second.attr["shared_name"].s = first.attr["shared_name"].s


@pytest.mark.parametrize(
    "change", [swap_pieces, do_not_wait, convert_otherwise, change_the_function, share_a_piece]
)
def test_a_step_that_is_wrong_is_found(two_layers, change):
    flat, decisions, step = two_layers
    with pytest.raises(RewriteError):
        prove_joints(flat, decisions, changed(step, change), PIECES)
