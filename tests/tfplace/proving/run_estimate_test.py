"""Both models are run where that is asked for, or thought to take little."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from tests.builders import chain
from tfplace.proving.run_estimate import RunEstimate, cpu_step_seconds, decide, estimate_run

GIB = 2.0**30
CHEAP = RunEstimate(seconds=10.0, bytes=GIB)


@pytest.mark.parametrize("wanted", ["auto", "run"])
def test_what_is_cheap_is_run_under_a_limit_of_memory(wanted):
    limits = decide(CHEAP, wanted, 60.0, 8 * GIB).limits
    assert limits.memory_bytes == (2 * GIB if wanted == "auto" else 6.4 * GIB)
    assert limits.seconds == (30.0 if wanted == "auto" else 600.0)


def test_structure_never_runs():
    decision = decide(CHEAP, "structure", 1e6, 1e15)
    assert (decision.limits, decision.why) == (None, "--verify=structure")


@pytest.mark.parametrize(
    ("estimate", "budget_seconds", "is_run"),
    [
        (RunEstimate(20.0, GIB), 1.0, True),  # 20 s at least
        (RunEstimate(21.0, GIB), 60.0, False),
        (RunEstimate(21.0, GIB), 84.0, True),  # a quarter of the budget
        (RunEstimate(1.0, 4 * GIB), 60.0, True),  # half of the free memory
        (RunEstimate(1.0, 4.1 * GIB), 60.0, False),
    ],
)
def test_auto_goes_by_the_estimates(estimate, budget_seconds, is_run):
    decision = decide(estimate, "auto", budget_seconds, 8 * GIB)
    assert (decision.limits is not None) == is_run
    if not is_run:
        assert decision.why.startswith("it would take about ")
        assert decide(estimate, "run", budget_seconds, 8 * GIB).limits is not None


def test_auto_takes_what_is_left_of_the_time_for_all_and_20_s_whatever_that_is():
    limits = decide(CHEAP, "auto", 120.0, 8 * GIB, seconds_left=22.0).limits
    assert (limits.seconds, limits.budget_seconds) == (22.0, 22.0)
    for left in (9.0, -5.0):
        assert decide(CHEAP, "auto", 60.0, 8 * GIB, seconds_left=left).limits.seconds == 20.0
    assert decide(CHEAP, "run", 60.0, 8 * GIB, seconds_left=-1.0).limits is not None


def test_a_quick_run_is_not_ended_before_what_auto_may_spend():
    assert decide(RunEstimate(2.0, GIB), "auto", 3.0, 8 * GIB).limits.seconds == 20.0
    assert decide(RunEstimate(2.0, GIB), "auto", 200.0, 8 * GIB).limits.seconds == 50.0


def test_an_estimate_holds_the_start_of_tensorflow_and_both_models():
    """Three ops of 1 s on a CPU, trained for two steps by both models."""
    problem = dataclasses.replace(chain(3), device_types=["CPU"] * chain(3).num_devices)
    for is_present, scale in ((True, 1.0), (False, 0.5 / 0.2)):
        prepared = SimpleNamespace(
            problem=problem,
            source=SimpleNamespace(mode="train"),
            is_present=is_present,
            cluster=SimpleNamespace(devices=[SimpleNamespace(efficiency=0.5)]),
        )
        step_seconds = 3 * (scale + 20e-6)
        assert cpu_step_seconds(prepared) == pytest.approx(step_seconds)
        estimate = estimate_run(prepared, np.zeros(3, dtype=np.int32))
        assert estimate.seconds == pytest.approx(2.0 + 2 * (3 * 7e-4 + 2 * step_seconds))
        assert 0.8 * GIB < estimate.bytes < GIB
