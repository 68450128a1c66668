"""Whether a placement still leads where prices are off."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from graphs.problem import Measurement
from tests.builders import Machine, Op, build_problem
from tfplace.choosing.baselines import Candidate
from tfplace.report.explaining.sensitivity import sensitivity
from tfplace.simulation.simulated import simulated

GPUS = Machine(2, bandwidth=100.0, types=["GPU", "GPU"])


def decided(problem, verdict="placed", is_present=False, unsplit=None):
    """One device holds everything in the baselines."""
    one = np.zeros(problem.num_ops, np.int32)
    outcome = simulated(problem, one).outcome
    single = Candidate("single", one, outcome)
    return SimpleNamespace(
        prepared=SimpleNamespace(problem=problem, is_present=is_present),
        searched=SimpleNamespace(baselines=[single], unsplit=unsplit),
        choice=SimpleNamespace(verdict=verdict),
    )


def towers(bytes_sent):
    """Two products of 3 s each, the second's result sent to where the sum is."""
    ops = [
        Op("a", 3.0, type="MatMul"),
        Op("b", 3.0, outputs=(bytes_sent,), type="MatMul"),
        Op("c", 1.0, ("b:0",), type="AddV2"),
    ]
    return build_problem(ops, GPUS)


APART = np.array([0, 1, 0], np.int32)


def test_what_leads_by_much_holds():
    problem = towers(50)
    found = sensitivity(decided(problem), simulated(problem, APART))
    assert found["holds"] and len(found["cases"]) == 8
    of = {
        case["what"]: case["step_seconds"] / case["baseline_step_seconds"]
        for case in found["cases"]
    }
    assert of["links 0.5 times as fast"] == pytest.approx((3.0 + 1.0 + 1.0) / 7.0)
    assert of["products 1.5 times as slow"] == pytest.approx((4.5 + 0.5 + 1.0) / 10.0)
    assert found["sentence"].endswith("of one device's step")


def test_what_slower_links_would_make_slower_is_named():
    problem = towers(200)  # 2 s on the link: 6 s beside 7; half as fast 8 s
    found = sensitivity(decided(problem), simulated(problem, APART))
    assert not found["holds"]
    assert found["sentence"] == (
        "not sure: with links 0.5 times as fast it takes 1.14 of one device's step"
    )


def test_what_would_not_fit_then_is_named(monkeypatch):
    """Memory is held at other times where prices are other ones."""
    monkeypatch.setattr(
        "tfplace.report.explaining.sensitivity._seconds",
        lambda problem, placement: 7.0 if not placement.any() else float("inf"),
    )
    problem = towers(50)
    found = sensitivity(decided(problem), simulated(problem, APART))
    assert not found["holds"]
    assert found["sentence"].endswith("it no longer fits")


def test_a_split_step_is_beside_the_step_as_it_came():
    problem, whole = towers(50), towers(50)
    slower = dataclasses.replace(whole, op_seconds=2.0 * whole.op_seconds)
    outcome = Measurement(14.0, (0, 0), "simulated")
    unsplit = SimpleNamespace(
        problem=slower, baselines=[Candidate("single", np.zeros(3, np.int32), outcome)]
    )
    found = sensitivity(decided(problem, unsplit=unsplit), simulated(problem, APART))
    assert found["cases"][0]["baseline_step_seconds"] == pytest.approx(14.0)


@pytest.mark.parametrize("facts", [{"verdict": "kept_single"}, {"is_present": True}])
def test_nothing_is_said_where_nothing_leads_or_real_runs_decide(facts):
    problem = towers(50)
    assert sensitivity(decided(problem, **facts), simulated(problem, APART)) is None
