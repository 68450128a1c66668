"""All proofs of all benchmark graphs, split into 2, 3 and 4 parts of a batch that none divides."""

from __future__ import annotations

import pytest

from graphs.loading.feeds import feeds_of_opened
from rewrite.split.building.build_step import build_step
from rewrite.split.prove.ops.child import outcomes_of
from rewrite.split.prove.ops.op_case import CaseOutcome
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.runs.child import compare
from rewrite.split.prove.runs.compare_runs import request_of
from rewrite.split.prove.structure.check_resharding import prove_joints
from tests.rewrite.split.traced_steps import step_of_zoo

BATCH = 7
QUICK = ("dlrm", "rnnlm")
HEAVY = ("cifar10", "inception_v3", "moe", "nasnet", "nmt", "resnet50", "resnet152", "transformer")


def by_hand(name):
    return pytest.param(name, marks=pytest.mark.corpus)


@pytest.fixture(scope="module", params=[*QUICK, *map(by_hand, HEAVY)])
def decided(request, tmp_path_factory):
    return step_of_zoo(request.param, BATCH, tmp_path_factory.mktemp("zoo"))


@pytest.mark.parametrize("num_shards", [2, 3, 4])
def test_every_op_is_proven_and_two_steps_are_the_same(decided, num_shards):
    flat, properties, decisions = decided
    cases = op_cases(flat, decisions, num_shards)
    wrong = [(case.name, outcome) for case, outcome in zip(cases, outcomes_of(cases), strict=True)
             if outcome != CaseOutcome()]  # fmt: skip
    assert len(cases) > 30 and not wrong
    step = build_step(flat, decisions, num_shards)
    joints = prove_joints(flat, decisions, step, num_shards)
    feeds = feeds_of_opened(flat, properties, flat.feeds, 0)
    runs = compare(request_of(flat, decisions, step, joints.exact, feeds))
    assert not runs.differing and not runs.not_compared and not runs.why_not
    assert runs.narrow_ops == {}
    assert runs.max_relative_difference < 1e-11
    assert len(runs.compared) > 5
