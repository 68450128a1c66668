"""Five hundred random changes of split steps are found: `pytest -m fuzz`, some minutes.

A change counts that makes another step: one that the proofs don't find is run beside the step as
it came, in float64. Of decisions an answer is changed instead, and the op is run as that says.
"""

from __future__ import annotations

import copy
import dataclasses
import random

import pytest
import tf_keras

from graphs.building.shapes import infer_known
from graphs.loading.feeds import feeds_of_opened
from rewrite.pass_base import RewriteError
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.building.build_step import build_step
from rewrite.split.decision import Split
from rewrite.split.prove.ops.child import outcomes_of
from rewrite.split.prove.ops.op_case import CaseOutcome
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.runs.child import compare
from rewrite.split.prove.runs.compare_runs import request_of
from rewrite.split.prove.structure.check_resharding import other_sizes, prove_joints
from rewrite.split.states import SUM, WHOLE, Partial, Sharded
from tests.rewrite.split.decide.conditionals_test import conditional_step
from tests.rewrite.split.decide.loops_test import lstm
from tests.rewrite.split.prove.structure import check_functions_test, check_resharding_test
from tests.rewrite.split.traced_steps import keras_step, step_of_zoo

pytestmark = pytest.mark.fuzz
BATCH, NUM_SHARDS = 5, 3
NUM_CHANGES, NUM_ANSWERS = 70, 15
ZOO = ("cifar10", "dlrm", "rnnlm", "transformer")
ALIKE = [
    {"Sum", "Mean", "Max", "Min", "Prod"},
    {"AddV2", "Sub", "Mul", "Maximum", "Minimum", "RealDiv", "SquaredDifference"},
    {"Relu", "Tanh", "Sigmoid", "Exp", "Neg", "Square"},
    {"ReluGrad", "TanhGrad", "SigmoidGrad"},
    {"MaxPool", "AvgPool"},
    {"AssignSubVariableOp", "AssignAddVariableOp", "AssignVariableOp"},
]
"""Ops that could take each other's place."""


def of_zoo(name):
    """A step of the zoo, of one batch size."""

    def make(folder):
        flat, _, decisions = step_of_zoo(name, BATCH, folder)
        return flat, decisions

    return make


def of_any_batch(folder):
    """A Keras LSTM for any batch size: calls, loops, lists."""
    flat = keras_step(tf_keras, lstm(tf_keras), None, BATCH)
    axes = {spec.tensor: 0 for spec in flat.feeds}
    every = {tensor: [0] for tensor in axes}
    return flat, decide_open(flat, infer_known(flat), BATCH, axes, every)


def conditional(folder):
    """A conditional with sums over the batch, and its gradient, for any batch size."""
    flat = conditional_step("sums over the batch", None)
    return flat, decide_open(flat, infer_known(flat), BATCH, {"x:0": 0}, {"x:0": [0]})


STEPS = {**{name: of_zoo(name) for name in ZOO}, "lstm": of_any_batch, "conditional": conditional}


@pytest.fixture(scope="module", params=STEPS)
def built(request, tmp_path_factory):
    flat, decisions = STEPS[request.param](tmp_path_factory.mktemp(request.param))
    return flat, decisions, build_step(flat, decisions, NUM_SHARDS)


def with_another_op(step, rng):
    """The step with an op of another type in the place of one, or None where there is none."""
    graph_def = copy.deepcopy(step.graph_def)
    there = [(node, kinds) for node in graph_def.node for kinds in ALIKE if node.op in kinds]
    if not there:
        return None
    node, kinds = rng.choice(there)
    node.op = rng.choice(sorted(kinds - {node.op}))
    return dataclasses.replace(step, graph_def=graph_def), "another op", f"{node.name}: {node.op}"


def changed_joint(flat, step, rng):
    """The step with a change of what joins, sums, cuts, weighs or counts."""
    graph_def = copy.deepcopy(step.graph_def)
    known = {*flat.nodes, *(name for names in step.copies.values() for name in names)}
    joints = [node for node in graph_def.node if node.name not in known]
    some = type(graph_def)(node=rng.sample(joints, min(len(joints), 20)))
    before = {node.name for node in some.node}
    kinds = check_resharding_test.changes_of(some, {node.name for node in graph_def.node}, rng)
    kind = rng.choice(sorted(kinds.keys() - {"op type", "node renamed", "attribute removed"}))
    what, change = rng.choice(kinds[kind])
    change()
    after = {node.name: node for node in some.node}
    nodes = [after.get(node.name) if node.name in before else node for node in graph_def.node]
    del graph_def.node[:]
    graph_def.node.extend(node for node in nodes if node is not None)
    return dataclasses.replace(step, graph_def=graph_def), f"joint: {kind}", what


def randomly_changed(flat, step, rng):
    """A split step with one change, what kind of change it is, and of what."""
    if rng.random() < 0.4:
        return changed_joint(flat, step, rng)
    has_functions = len(step.graph_def.library.function) > len(flat.library)
    if rng.random() < 0.2 and (found := with_another_op(step, rng)):
        return found
    if has_functions and rng.random() < 0.5:
        return check_functions_test.randomly_changed(step, flat, rng)
    return check_resharding_test.randomly_changed(step, rng)


def test_random_changes_of_steps_are_found(built):
    flat, decisions, step = built
    rng = random.Random(len(step.graph_def.node))
    sizes = [decisions, *other_sizes(flat, decisions, NUM_SHARDS)]
    exact = prove_joints(flat, decisions, step, NUM_SHARDS).exact
    found, missed = 0, []
    while found + len(missed) < NUM_CHANGES:
        changed, kind, what = randomly_changed(flat, step, rng)
        try:
            for decided in sizes:
                prove_joints(flat, decided, changed, NUM_SHARDS)
        except RewriteError:
            found += 1
            continue
        if "control" in kind or is_another(flat, decisions, changed, exact):
            missed.append((kind, what))
    assert not missed


def is_another(flat, decisions, step, exact):
    """Whether a step computes something else, on inputs that each say something else."""
    for seed in range(2):
        feeds = feeds_of_opened(flat, decisions.properties, flat.feeds, seed)
        runs = compare(request_of(flat, decisions, step, exact, feeds))
        if runs.differing or runs.why_not:
            return True
    return False


def other_answer(answer, rng):
    """An answer that differs in one state, or in how sizes and means are taken."""
    inputs, outputs = list(answer.inputs), list(answer.outputs)
    kinds = ["output"] * bool(outputs) + ["input"] * bool(inputs) + ["sizes"]
    kinds += ["mean"] * any(isinstance(state, Partial) for state in outputs)  # else it says nothing
    kind = rng.choice(kinds)
    if kind == "mean":
        return dataclasses.replace(answer, is_mean=not answer.is_mean)
    if kind == "sizes":
        return dataclasses.replace(answer, shape_inputs={}, row_inputs={})
    states = outputs if kind == "output" else inputs
    at = rng.randrange(len(states))
    others = [WHOLE, SUM, Partial("max"), Sharded(0), Sharded(1), Sharded(2)]
    states[at] = rng.choice([each for each in others if each != states[at]])
    return dataclasses.replace(answer, inputs=tuple(inputs), outputs=tuple(outputs))


def test_random_wrong_answers_are_found(built):
    flat, decisions, _ = built
    rng = random.Random(len(flat.nodes))
    answers = decisions.answer_of_op
    split = [
        name
        for name, answer in answers.items()
        if isinstance(answer, Split) and not answer.bodies and not answer.is_repeated
    ]
    found, missed = 0, []
    for _ in range(20 * NUM_ANSWERS):
        name = rng.choice(split)
        wrong = other_answer(answers[name], rng)
        if wrong == answers[name] or found == NUM_ANSWERS:
            continue
        changed = dataclasses.replace(decisions, answer_of_op={**answers, name: wrong})
        try:
            cases = [each for each in op_cases(flat, changed, NUM_SHARDS) if each.name == name]
        except (ValueError, LookupError, AssertionError):
            continue  # no such answer can be given
        for case, outcome in zip(cases, outcomes_of(cases), strict=True):
            found += bool(outcome.differs)
            is_linear = wrong.outputs == (SUM,) and SUM in wrong.inputs  # its terms make terms
            if outcome == CaseOutcome() and not is_linear:
                missed.append((name, case.kind, wrong))
    assert found == NUM_ANSWERS and not missed
