"""Nothing is said of a thousand random steps that are split right: `pytest -m fuzz`.

Where their parts compute something else, `any_batch/random_steps_test.py` says so.
"""

import pytest

from graphs.building.shapes import infer_known
from graphs.loading.feeds import feeds_of_opened
from rewrite.split.any_batch.decide_open import decide_open
from rewrite.split.building.build_step import build_step
from rewrite.split.decide.decide import decide
from rewrite.split.prove.ops.child import outcomes_of
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.runs.child import compare
from rewrite.split.prove.runs.compare_runs import request_of
from rewrite.split.prove.structure.check_resharding import prove_sizes
from rewrite.split.reading.state_order import require_state_order
from tests.rewrite.split.any_batch.random_steps import LAYERS, ROWS, random_step

QUICK, NUM_STEPS, GROUP = 3, 1000, 50
GROUPS = [
    pytest.param(range(QUICK)),
    *(
        pytest.param(range(first, first + GROUP), marks=pytest.mark.fuzz)
        for first in range(0, NUM_STEPS, GROUP)
    ),
]


@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"{seeds.start}-{seeds.stop}")
def test_no_false_alarm(seeds):
    said, num_compared = {}, 0
    for seed in seeds:
        step = random_step(seed, LAYERS | ROWS)
        alarms, is_compared = alarms_of(step, num_shards=2 + seed % 2)
        num_compared += is_compared
        if alarms:
            said[seed] = step.words, alarms
    assert not said
    assert num_compared > 0.9 * len(seeds)


def alarms_of(step, num_shards):
    """What the proofs say against a split step, and whether whole steps were compared."""
    flat, properties = step.flat, infer_known(step.flat)
    arguments = flat, properties, step.batch, step.axis_of_feed
    decisions = decide_open(*arguments, step.open_axes) or decide(*arguments)
    split = build_step(flat, decisions, num_shards)
    joints = prove_sizes(flat, decisions, split, num_shards, seconds=60.0)
    require_state_order(flat, split)
    cases = op_cases(flat, decisions, num_shards)
    alarms = [
        f"{case.name} ({case.kind}): {outcome.differs}"
        for case, outcome in zip(cases, outcomes_of(cases), strict=True)
        if outcome.differs
    ]
    feeds = feeds_of_opened(flat, properties, flat.feeds, seed=0)
    runs = compare(request_of(flat, decisions, split, joints.exact, feeds))
    return [*alarms, *runs.differing], not runs.why_not
