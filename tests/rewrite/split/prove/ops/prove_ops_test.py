"""Every rule's answer is proven on its op, and a wrong answer is found."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.shapes import infer, infer_known
from graphs.host.asked_child import ChildError
from rewrite.split.decide.decide import decide
from rewrite.split.decision import Split
from rewrite.split.prove.ops import child as prove_ops_child
from rewrite.split.prove.ops import prove_ops as running
from rewrite.split.prove.ops.case_graph import CaseGraph
from rewrite.split.prove.ops.child import compared, outcomes_of
from rewrite.split.prove.ops.op_case import CaseOutcome
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.ops.prove_ops import NotProven, prove_ops
from rewrite.split.states import SUM, WHOLE, Partial, Sharded
from tests.rewrite.split.child_here import Here
from tests.rewrite.split.rules.more_rules_test import CASES as MORE_CASES
from tests.rewrite.split.rules.rules_test import CASES
from tests.rewrite.split.rules.run_rule import BATCH, floats, ints
from tests.rewrite.split.run_step import flat_graph

v1 = tf.compat.v1
raw = tf.raw_ops
X, IDS, IMAGES = floats(BATCH, 4), ints(6, BATCH, 4), floats(BATCH, 6, 6, 2)


def decided(name):
    """A case of the rules' own tests, and what the rules say of it."""
    arrays, batch_axes, build = {**CASES, **MORE_CASES}[name][:3]
    feeds = {f"x{i}:0": array for i, array in enumerate(arrays)}
    with tf.Graph().as_default() as graph:
        result = build(*[v1.placeholder(a.dtype, a.shape, f"x{i}") for i, a in enumerate(arrays)])
    flat = flat_graph(graph, feeds, [result.name])
    properties = infer(flat)
    batch = next(a.shape[x] for a, x in zip(arrays, batch_axes, strict=True) if x is not None)
    axes = {f"x{i}:0": axis for i, axis in enumerate(batch_axes) if axis is not None}
    return flat, properties, decide(flat, properties, batch, axes), result.op.name


def cases_of(name, num_shards):
    flat, _, decisions, _ = decided(name)
    return op_cases(flat, decisions, num_shards)


@pytest.mark.parametrize("num_shards", [2, 3])
def test_all_rules_are_proven(num_shards):
    cases = [case for name in CASES for case in cases_of(name, num_shards)]
    assert len(cases) > 70
    wrong = [(case.name, case.node.op, outcome)
             for case, outcome in zip(cases, outcomes_of(cases), strict=True)
             if outcome != CaseOutcome()]  # fmt: skip
    assert not wrong


def test_of_rarer_ops_all_that_can_be_fed_are_proven():
    cases = [case for name in MORE_CASES for case in cases_of(name, 2)]
    outcomes = list(zip(cases, outcomes_of(cases), strict=True))
    assert not [(case.name, outcome) for case, outcome in outcomes if outcome.differs]
    assert not [(case.node.op, outcome) for case, outcome in outcomes if outcome.not_proven]


def only(*outputs):
    return {"outputs": outputs}


# {case: what its rule could have said instead}
WRONG = {
    "unary": only(Sharded(1)),
    "binary": only(SUM),
    "sum": only(Partial("max")),
    "sum of all": {"is_mean": True},
    "sum of rows": only(Partial()),
    "mean": {"is_mean": False},
    "max": only(SUM),
    "all": only(Partial("any")),
    "any": only(Partial("all")),
    "prod": only(SUM),
    "l2 loss": only(WHOLE),
    "matmul": {"inputs": (WHOLE, WHOLE)},
    "weight gradient": only(Sharded(0)),
    "cumsum across": {"inputs": (Sharded(0), WHOLE), "outputs": (Sharded(0),)},
    "softmax across": {"inputs": (Sharded(1),), "outputs": (Sharded(1),)},
    "sums added": {"inputs": (SUM, WHOLE)},
    "root of a sum": {"inputs": (SUM,), "outputs": (SUM,)},
    "batch inside": {"outputs": (Sharded(0),)},
    "batch spread": {"inputs": (Sharded(0), WHOLE), "outputs": (Sharded(0),)},
    "convolution's input gradient": {"shape_inputs": {}},
    "flatten": {"shape_inputs": {}},
    "transpose": only(Sharded(0)),
    "gather rows": {"inputs": (Sharded(0), WHOLE, WHOLE), "outputs": (Sharded(0),)},
    "roll across": {"inputs": (Sharded(0), WHOLE, WHOLE), "outputs": (Sharded(0),)},
    "sparse cross entropy": {"inputs": (Sharded(0), WHOLE)},
    "softmax": {"attrs": {"T": v1.AttrValue(type=tf.int32.as_datatype_enum)}},
    "strided slice across": {
        "inputs": (Sharded(0), WHOLE, WHOLE, WHOLE), "outputs": (Sharded(0),),
    },
    "bias on axis 1": only(Sharded(0)),
    "one hot": only(Sharded(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_found(name):
    flat, _, decisions, op = decided(name)
    right = decisions.answer_of_op[op]
    if not isinstance(right, Split):
        right = Split((), ())
    wrong = dataclasses.replace(right, **WRONG[name])
    answers = {**decisions.answer_of_op, op: wrong}
    changed = dataclasses.replace(decisions, answer_of_op=answers)
    cases = [case for case in op_cases(flat, changed, 2) if case.name == op]
    assert outcomes_of(cases)[0].differs


@pytest.mark.parametrize(("output", "is_compared"), [(0, True), (2, True), (3, False), (4, False)])
def test_what_a_kernel_never_writes_is_not_compared(output, is_compared):
    images = np.zeros((BATCH, 2, 2, 3), np.float32)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, images.shape, "x0")
        ones = tf.ones([3])
        normed = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=ones, offset=ones, mean=ones, variance=ones, is_training=False
        )
    flat = flat_graph(graph, {"x0:0": images}, [normed.y.name])
    decisions = decide(flat, infer(flat), BATCH, {"x0:0": 0})
    [case] = [c for c in op_cases(flat, decisions, 2) if c.node.op == "FusedBatchNormV3"]
    whole = [images, *np.zeros((5, 3), np.float32)]
    parts = [[images[:3], *whole[1:]], [images[3:], *whole[1:]]]
    whole[output] = whole[output] + 1e31
    outcome = compared(SimpleNamespace(case=case, tolerance=1e-5), whole, parts)
    assert bool(outcome.differs) == is_compared


def test_a_layer_norms_gradient_is_proven_without_what_kernels_keep_for_it():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 4), "x")
        scale = tf.tanh(tf.ones([BATCH]) + x[:, 0])
        loss = tf.reduce_sum(tf.tanh(raw.FusedBatchNormV3(
            x=x[None, :, :, None], scale=scale, offset=scale, mean=[], variance=[],
            data_format="NCHW")[0]), name="loss")  # fmt: skip
        gradient = tf.gradients(loss, x)[0]
    flat = flat_graph(graph, {"x:0": X}, [gradient.name])
    decisions = decide(flat, infer(flat), BATCH, {"x:0": 0})
    cases = op_cases(flat, decisions, 2)
    assert "FusedBatchNormGradV3" in {case.kind for case in cases}
    assert {*outcomes_of(cases)} == {CaseOutcome()}


def test_alike_ops_are_proven_once_and_in_a_child():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (BATCH, 4), "x")
        for _ in range(5):
            x = tf.tanh(x)
        tf.reduce_sum(x, name="sum")
    flat = flat_graph(graph, {"x:0": np.zeros((BATCH, 4), np.float32)}, ["sum:0"])
    properties = infer(flat)
    decisions = decide(flat, properties, BATCH, {"x:0": 0})
    assert [case.count for case in op_cases(flat, decisions, 2)] == [5, 1]
    proof = prove_ops(flat, decisions, 2)
    assert (proof.distinct_ops, proof.proven_ops) == (2, 2)
    assert not proof.not_proven and not proof.differing
    starved = prove_ops(flat, decisions, 2, memory_bytes=1)
    why = "it takes 0.0 GiB of memory, more than there is for it"
    assert starved.not_proven == [NotProven("Sum", 1, why), NotProven("Tanh", 1, why)]
    hurried = prove_ops(flat, decisions, 2, seconds=0)
    assert hurried.not_proven[0].reason == "the time for proving ops was used up"


def test_gradients_of_grouped_convolutions_are_proven_in_their_own_types():
    images = np.zeros((BATCH, 6, 6, 8), np.float32)
    with tf.Graph().as_default() as graph:
        x, kernel = v1.placeholder(tf.float32, images.shape, "x"), tf.ones([3, 3, 4, 8])
        loss = tf.reduce_sum(tf.tanh(tf.nn.conv2d(tf.tanh(x), kernel, 1, "SAME")))
        found = [each.op.name for each in tf.gradients(loss, [x, kernel])]
    flat = flat_graph(graph, {"x:0": images}, [f"{name}:0" for name in found])
    decisions = decide(flat, infer(flat), BATCH, {"x:0": 0})
    kinds = {case.kind for case in op_cases(flat, decisions, 2)}
    assert kinds >= {"Conv2DBackpropInput", "Conv2DBackpropFilter"}
    proof = prove_ops(flat, decisions, 2)
    assert proof.proven_ops == proof.distinct_ops
    assert not proof.not_proven and not proof.differing


def test_a_case_that_ends_the_child_counts_and_the_others_are_proven(monkeypatch):
    cases = [case for name in ("unary", "binary", "sum") for case in cases_of(name, 2)]
    bad = cases[1]

    class Killed(Here):
        def ask(self, batches, memory_bytes):
            self._batches = batches

        def answer(self, seconds):
            done = []
            for batch in self._batches:
                if any(case.name == bad.name for case in batch):
                    raise ChildError("it was killed by SIGSEGV", done)
                done.append([CaseOutcome()] * len(batch))
            return done

    monkeypatch.setattr(running, "AskedChild", Killed)
    outcomes, _ = running.prove_cases(cases, 10.0, None)
    why = "it ended the process: it was killed by SIGSEGV"
    assert outcomes[1] == CaseOutcome(not_proven=why)
    assert [outcome for outcome in outcomes if outcome == CaseOutcome()]


class BegunChild(Here):
    """An AskedChild that does some batches and then ends; those after the first do all."""

    done = 100
    asked: list = []  # noqa: RUF012
    closed = 0

    def ask(self, batches, memory_bytes):
        self.asked.append([case.name for batch in batches for case in batch])
        kept = self.done if len(self.asked) == 1 else len(batches)
        self._answer = [outcomes_of(batch) for batch in batches[:kept]]
        self._is_killed = kept < len(batches)

    def answer(self, seconds):
        if self._is_killed:
            raise ChildError("killed", self._answer, gave_up=True)
        return self._answer

    def close(self):
        type(self).closed += 1


@pytest.mark.parametrize("done", [100, 1])
def test_what_a_child_has_begun_is_not_done_again(monkeypatch, done):
    flat, _, decisions, _ = decided("matmul")
    monkeypatch.setattr(running, "_BATCH_CASES", 1)
    monkeypatch.setattr(BegunChild, "done", done)
    monkeypatch.setattr(BegunChild, "asked", [])
    monkeypatch.setattr(BegunChild, "closed", 0)
    monkeypatch.setattr(running, "AskedChild", BegunChild)
    with running.begun_cases(op_cases(flat, decisions, 2), None) as begun:
        proof = prove_ops(flat, decisions, 2, begun=begun)
    assert BegunChild.closed >= len(BegunChild.asked)
    again = [name for names in BegunChild.asked[1:] for name in names]
    assert len(again) == max(len(begun.cases) - done - 1, 0)
    ended = [missing.reason for missing in proof.not_proven]
    assert ended == ["it ended the process: killed"] * (done < len(begun.cases))
    assert proof.proven_ops == len(begun.cases) - len(ended)


def variable(*shape):
    return v1.get_variable(f"v{len(v1.global_variables())}", shape, use_resource=True)


# {name: (what is fed, the op)} of which random inputs would make zeros, NaN or the same everywhere
THIN = {
    "acosh": (X, lambda x: tf.acosh(x)),
    "zeta": (X, lambda x: raw.Zeta(x=x, q=x)),
    "polygamma": (X, lambda x: raw.Polygamma(a=x, x=x)),
    "betainc": (X, lambda x: raw.Betainc(a=x, b=x, x=x)),
    "bessel": (X, lambda x: raw.BesselK0(x=x)),
    "imaginary": (X.astype("complex64"), lambda x: tf.math.imag(x)),
    "equal": (X, lambda x: raw.Equal(x=x, y=x[::-1])),
    "padding": (IDS, lambda x: raw.NotEqual(x=x, y=0)),
    "above": (X, lambda x: raw.Greater(x=x, y=100.0)),
    "finite": (X, lambda x: tf.math.is_finite(x)),
    "sign": (IDS, lambda x: tf.sign(x)),
    "truth": (IDS, lambda x: tf.cast(x, tf.bool)),
    "buckets": (X, lambda x: raw.Bucketize(input=x, boundaries=[18.0, 30.0])),
    "clipped": (X, lambda x: raw.ClipByValue(
        t=x, clip_value_min=variable(), clip_value_max=variable())),
    "normed": (IMAGES, lambda x: raw.FusedBatchNormV3(
        x=x, scale=variable(2), offset=variable(2), mean=variable(2), variance=variable(2),
        is_training=False)[0]),
    "pool": (IMAGES, lambda x: raw.MaxPoolGradGrad(
        orig_input=x, orig_output=x[:, ::2, ::2], grad=x, ksize=[1, 2, 2, 1],
        strides=[1, 2, 2, 1], padding="VALID")),
    "maxima": (np.zeros((90, 90), "i"), lambda x: tf.reduce_max(x, 0)),
    "counts": (IDS[:, 0], lambda x: raw.Bincount(arr=x, size=1, weights=floats(0))),
}  # fmt: skip


@pytest.mark.parametrize("name", THIN)
def test_what_is_compared_has_values_to_tell_apart(name, monkeypatch):
    array, build = THIN[name]
    with tf.Graph().as_default() as graph:
        result = build(v1.placeholder(array.dtype, array.shape, "x"))
    flat = flat_graph(graph, {"x:0": array}, [result.name])
    decisions = decide(flat, infer_known(flat), len(array), {"x:0": 0})
    [case] = [c for c in op_cases(flat, decisions, 2) if c.name == result.op.name]
    found = []
    monkeypatch.setattr(
        prove_ops_child, "compared", lambda _, whole, parts: found.append(whole[0]) or CaseOutcome()
    )
    assert outcomes_of([case]) == [CaseOutcome()]
    values = np.unique(np.nan_to_num(found[0], nan=0.0))
    assert np.isfinite(found[0]).all() and values.any()
    assert len(values) > 1 or found[0].size == 1


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_a_product_of_many_is_no_zero(dtype):
    """A sum of such parts would be the same zero."""
    array = np.zeros((5000, 2), dtype)
    with tf.Graph().as_default() as graph:
        result = tf.reduce_prod(v1.placeholder(dtype, array.shape, "x"), 0)
    flat = flat_graph(graph, {"x:0": array}, [result.name])
    decisions = decide(flat, infer_known(flat), len(array), {"x:0": 0})
    [case] = op_cases(flat, decisions, 2)
    assert outcomes_of([case]) == [CaseOutcome()]
    assert outcomes_of([dataclasses.replace(case, outputs=(SUM,))])[0].differs


def test_what_has_no_inputs_to_make_up_is_named():
    flat, _, decisions, op = decided("unary")
    case = next(c for c in op_cases(flat, decisions, 2) if c.name == op)
    variant = dataclasses.replace(case.inputs[0], shape=None)
    outcome = outcomes_of([dataclasses.replace(case, inputs=(variant,))])[0]
    assert outcome.not_proven == "the shape of an input is not known before the run"


def test_lists_have_no_values_to_make_up():
    flat, _, decisions, op = decided("unary")
    case = next(c for c in op_cases(flat, decisions, 2) if c.name == op)
    node = v1.NodeDef(op="TensorListLength")
    given = dataclasses.replace(case.inputs[0], dtype="variant")
    outcome = outcomes_of([dataclasses.replace(case, node=node, copy=node, inputs=(given,))])[0]
    assert outcome.not_proven == "a variant has no values to make up"


def test_polynomials_are_proven_bit_for_bit_and_nothing_else_is():
    cases = [case for name in CASES for case in cases_of(name, 3)]
    exact = {
        case.node.op
        for case, outcome in zip(cases, outcomes_of(cases), strict=True)
        if outcome.is_exact
    }
    assert {"MatMul", "Conv2D", "Conv2DBackpropFilter", "Sum", "Transpose", "BiasAddGrad"} <= exact
    assert exact.isdisjoint({"Softmax", "Exp", "Tanh", "Mean", "Rsqrt", "FusedBatchNormV3"})


def test_whole_numbers_leave_no_room_for_rounding():
    """Of a sum that leaves out what is far smaller than its largest term, floats say nothing."""
    case = next(each for each in cases_of("sum", 2) if each.node.op == "Sum")
    graph = CaseGraph(case, "case")
    assert graph.tolerance == 0.0
    whole, first, rest = np.full(4, 2.0**40), np.full(4, 2.0**40 - 1.0), np.zeros(4)
    outcome = compared(graph, [whole], [[first], [rest]])
    assert outcome.differs.startswith("output 0: it differs by 1")
