"""Loops in copies are proven with their bodies, and random changes of them are found."""

from __future__ import annotations

import copy
import dataclasses
import random

import pytest
import tensorflow as tf
import tf_keras

from graphs.building.shapes import infer_known as infer
from rewrite.pass_base import RewriteError
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.building.build_step import build_step
from rewrite.split.building.shard_shapes import OpenShapes
from rewrite.split.decide.decide import decide
from rewrite.split.prove.ops.child import outcomes_of
from rewrite.split.prove.ops.op_case import CaseOutcome
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.structure.check_resharding import other_sizes, prove_joints, prove_sizes
from rewrite.split.states import WHOLE
from tests.rewrite.mutations import of_nodes
from tests.rewrite.split.decide.conditionals_test import conditional_step
from tests.rewrite.split.decide.loops_test import BATCH, BODIES, loop_step, lstm
from tests.rewrite.split.traced_steps import FEATURES, flat_step, keras_step

NUM_MUTATIONS = 60
NUM_SHARDS = 3
COMMUTATIVE = ("AddN", "AddV2", "Mul")


def fixed():
    """A loop over constants and its gradient, with a fixed batch."""
    body = BODIES["a constant with the batch in it"]
    flat = loop_step(lambda y, w: tf.cast(body(y, w), tf.float32))
    properties = infer(flat)
    return flat, properties, decide(flat, properties, BATCH, {"x:0": 0})


def opened():
    """A Keras LSTM that takes any batch size: calls, loops, lists."""
    flat = keras_step(tf_keras, lstm(tf_keras), None, BATCH)
    properties = infer(flat)
    axes = {spec.tensor: 0 for spec in flat.feeds}
    every = {tensor: [0] for tensor in axes}
    return flat, properties, decide_open(flat, properties, BATCH, axes, every)


def conditional():
    """A conditional in a conditional, and its gradient, for any batch size."""
    flat = conditional_step("a conditional in a branch", None)
    properties = infer(flat)
    return flat, properties, decide_open(flat, properties, BATCH, {"x:0": 0}, {"x:0": [0]})


@pytest.fixture(
    scope="module", params=[fixed, opened, conditional], ids=["fixed", "open", "conditional"]
)
def built(request):
    flat, properties, decisions = request.param()
    return flat, properties, decisions, build_step(flat, decisions, NUM_SHARDS)


def test_what_is_built_is_proven(built):
    flat, _, decisions, step = built
    proof = prove_sizes(flat, decisions, step, NUM_SHARDS, seconds=60.0)
    assert (proof.joins, proof.sums, proof.cuts) == (step.num_joins, step.num_sums, step.num_cuts)
    assert proof.batches == ([5, 7] if decisions.is_open else [5])


def test_what_a_loop_makes_of_two_batches_is_proven_at_several_sizes():
    def step(x):
        both = tf.concat([x, -x], 0)
        return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, tf.tanh(y)), (0, both))[1]

    flat = flat_step(step, [tf.TensorSpec((None, FEATURES), tf.float32, "x")], BATCH)
    properties = infer(flat)
    decisions = decide_open(flat, properties, BATCH, {"x:0": 0}, {"x:0": [0]})
    built = build_step(flat, decisions, NUM_SHARDS)
    proof = prove_sizes(flat, decisions, built, NUM_SHARDS, seconds=60.0)
    assert (proof.joins, proof.batches) == (1, [5, 7])


def test_every_op_of_its_bodies_is_proven(built):
    flat, _, decisions, _ = built
    cases = op_cases(flat, decisions, NUM_SHARDS)
    assert any(case.lists or any(each.is_optional for each in case.inputs) for case in cases)
    wrong = {case.name: outcome for case, outcome in zip(cases, outcomes_of(cases), strict=True)
             if outcome != CaseOutcome()}  # fmt: skip
    assert not wrong


def test_a_list_that_is_cut_otherwise_is_found(built):
    flat, _, decisions, _ = built
    if not any("TensorList" in str(function) for function in flat.library.values()):
        pytest.skip("it has no lists")
    for case in op_cases(flat, decisions, NUM_SHARDS):
        if case.node.op == "TensorListPushBack" and case.inputs[1].shape == (BATCH, FEATURES):
            wrong = dataclasses.replace(case, outputs=(WHOLE,))
            assert outcomes_of([wrong])[0].differs
            return
    raise AssertionError("found no list")


def test_random_changes_of_its_functions_are_found(built):
    flat, _, decisions, step = built
    rng = random.Random(5)
    sizes = [decisions, *other_sizes(flat, decisions, NUM_SHARDS)]
    as_built = normal(step.graph_def)
    missed, kinds = [], set()
    for _ in range(NUM_MUTATIONS):
        changed, kind, what = randomly_changed(step, flat, rng)
        if normal(changed.graph_def) == as_built:
            continue
        kinds.add(kind)
        try:
            for decided in sizes:
                prove_joints(flat, decided, changed, NUM_SHARDS)
            missed.append((kind, what))
        except RewriteError:
            pass
    assert not missed
    assert len(kinds) > 8


def randomly_changed(step, flat, rng):
    """A split step with one change of a shard's function, or of which one a copy runs."""
    graph_def = copy.deepcopy(step.graph_def)
    functions = [f for f in graph_def.library.function if f.signature.name not in flat.library]
    changes = {}
    for kind, what, change in changes_of(rng.choice(functions), rng):
        changes.setdefault(kind, []).append((what, change))
    for node in graph_def.node:
        for key, value in node.attr.items():
            if "_shard_" in value.func.name:
                others = [f.signature.name for f in functions]
                others = [name for name in others if name != value.func.name]
                other = rng.choice(others)
                move = lambda v=value, n=other: setattr(v.func, "name", n)  # noqa: E731
                changes.setdefault("another function", []).append((f"{node.name} {key}", move))
        for i, name in enumerate(node.input):
            if name.startswith("split/numbers/of_shard"):
                other = f"split/numbers/of_shard:{(int(name.partition(':')[2] or 0) + 1) % 3}"
                put = lambda n=node, i=i, o=other: n.input.__setitem__(i, o)  # noqa: E731
                changes.setdefault("another shard's numbers", []).append((node.name, put))
    kind = rng.choice(sorted(changes))
    what, change = rng.choice(changes[kind])
    change()
    return dataclasses.replace(step, graph_def=graph_def), kind, what


def changes_of(function, rng):
    """(kind, what, change) of what can be changed in a function."""
    some = type("Some", (), {"node": function.node_def, "library": type("L", (), {"function": []})})
    name = function.signature.name
    for kind, what, change in of_nodes(some, rng):
        if kind not in ("edge moved", "node renamed", "control edge"):
            yield kind, f"{name}{what}", change
    tensors = sorted({each for node in function.node_def for each in node.input})
    for node in function.node_def:
        for i, old in enumerate(node.input if node.op != "Shape" else []):  # others are as large
            new = rng.choice([each for each in tensors if each != old] or ["x"])
            put = lambda n=node, i=i, o=new: n.input.__setitem__(i, o)  # noqa: E731
            yield "edge moved", f"{name} {node.name} {i} from {new}", put
    for result, old in sorted(function.ret.items()):
        new = rng.choice([each for each in tensors if each != old])
        put = lambda r=result, n=new: function.ret.__setitem__(r, n)  # noqa: E731
        yield "result", f"{name} {result} from {new}", put
    argument = rng.choice(function.signature.input_arg)
    yield "argument's type", argument.name, lambda: setattr(argument, "type", argument.type % 7 + 1)


def normal(graph_def):
    """All of a graph but for the order of what is added, and which of equal constants is read."""
    functions = {}
    for function in graph_def.library.function:
        equal, nodes = {}, []
        for node in function.node_def:
            if node.op == "Const":
                key = node.attr["value"].SerializeToString(deterministic=True)
                equal[f"{node.name}:output:0"] = key
        for node in function.node_def:
            read = [equal.get(name, name.encode()) for name in node.input]
            attrs = sorted(
                (k, v.SerializeToString(deterministic=True)) for k, v in node.attr.items()
            )
            read = sorted(read) if node.op in COMMUTATIVE else read
            nodes.append((node.op, node.name, read, attrs))
        functions[function.signature.name] = (
            nodes, sorted(function.ret.items()), str(function.signature)
        )  # fmt: skip
    main = [node.SerializeToString(deterministic=True) for node in graph_def.node]
    return main, functions


def test_the_first_part_of_a_shape_is_read_and_no_other(built, monkeypatch):
    """Of a tensor whose shape is not known but for the batch."""
    flat, _, decisions, _ = built
    monkeypatch.setattr(OpenShapes, "_alone", lambda self, whole: "")
    step = build_step(flat, decisions, NUM_SHARDS)
    changed = copy.deepcopy(step.graph_def)
    asked = [n for n in changed.node if n.op == "Shape" and n.name not in flat.nodes]
    asked = [n for n in asked if "shard_0" in n.input[0]]
    if not decisions.is_open:
        pytest.skip("it takes one batch size only")
    assert asked
    for node in asked:
        node.input[0] = node.input[0].replace("shard_0", "shard_1")
    with pytest.raises(RewriteError, match="of what is this"):
        prove_joints(flat, decisions, dataclasses.replace(step, graph_def=changed), NUM_SHARDS)
