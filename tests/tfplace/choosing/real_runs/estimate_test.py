"""Whether step times tell what a machine is: a truth is made up, measured with noise, and found."""

from __future__ import annotations

import numpy as np
import pytest

from graphs.machine_numbers import corrected_problem, numbers_of
from tests.tfplace.choosing.real_runs.machines import lstm, placements_of, theta_of
from tfplace.choosing.forward_model import ForwardModel
from tfplace.choosing.real_runs.estimate import estimate
from tfplace.choosing.run_results import Corrections
from tfplace.simulation.simulator import Simulator

NOISE = 0.01
CPU0, CPU1 = "speed of /device:CPU:0", "speed of /device:CPU:1"


def _learned(values, num_placements=8, has_executor=False, spoilt=None, seed=0):
    """Corrections from noisy step times of a machine on which `values` are not as taken."""
    model = ForwardModel(lstm(has_executor=has_executor))
    placements = placements_of(model.problem, num_placements)
    rng = np.random.default_rng(seed)
    seconds = model.seconds(theta_of(model, values), placements)
    seconds *= np.exp(NOISE * rng.standard_normal(len(seconds)))
    if spoilt is not None:
        seconds[spoilt] *= 5.0
    noise = np.full(len(seconds), NOISE)
    return estimate(model, placements, seconds, noise), placements, seconds


def test_the_numbers_are_those_that_a_problem_has():
    assert [number.name for number in numbers_of(lstm(has_executor=True))] == [
        CPU0, CPU1, "link_latency", "link_bytes_per_second", "transfer_work", "contention",
        "op_dispatch_seconds", "step_start_seconds",
    ]  # fmt: skip
    assert "transfer_work" not in [number.name for number in numbers_of(lstm())]


def test_as_taken_changes_nothing():
    problem = lstm(has_executor=True)
    model = ForwardModel(problem)
    placements = placements_of(problem, 3)
    same = corrected_problem(problem, model.numbers, model.as_taken, model.as_taken)
    before = Simulator(problem, 1).run_many(placements)[0]
    assert np.array_equal(Simulator(same, 1).run_many(placements)[0], before)


@pytest.mark.parametrize(
    ("name", "truth"), [(CPU1, 0.6), ("link_latency", 5.0), ("link_bytes_per_second", 0.2)]
)
def test_what_is_wrong_is_found_within_its_interval(name, truth):
    learned, _, _ = _learned({name: truth})
    value, low, high = learned.values()[name]
    assert low < truth < high
    assert abs(np.log(value / truth)) < 0.25


@pytest.mark.parametrize("has_executor", [False, True])
def test_the_corrected_simulator_predicts_what_was_never_measured(has_executor):
    truth = {CPU0: 1.2, CPU1: 0.7, "link_latency": 4.0, "link_bytes_per_second": 0.5}
    if has_executor:
        truth["transfer_work"] = 2.0
    learned, _, _ = _learned(truth, 10, has_executor)
    others = placements_of(learned.model.problem, 20, seed=1)
    true_seconds = learned.model.seconds(theta_of(learned.model, truth), others)
    error = np.abs(learned.seconds(others) / true_seconds - 1.0)
    before = np.abs(learned.model.seconds(learned.model.as_taken, others) / true_seconds - 1.0)
    assert np.median(error) < 0.03 < 0.15 < np.median(before)


def test_one_spoilt_placement_bends_nothing():
    learned, placements, seconds = _learned({CPU1: 0.7}, 10, spoilt=4)
    error = np.abs(learned.seconds(placements) / seconds - 1.0)
    assert np.max(np.delete(error, 4)) < 0.06


def test_what_nothing_was_measured_of_stays_as_it_was_taken_and_unknown():
    model = ForwardModel(lstm())
    placements = placements_of(model.problem, 1)
    seconds = model.seconds(model.as_taken, placements)
    values = estimate(model, placements, seconds, np.full(1, NOISE)).values()
    value, low, high = values["link_latency"]
    assert (value, low < 0.2, high > 5.0) == (1.0, True, True)
    assert values["op_dispatch_seconds"][1] == 0.0


def test_more_placements_leave_less_open():
    def width(count):
        _, low, high = _learned({"link_latency": 3.0}, count)[0].values()["link_latency"]
        return np.log(high / low)

    assert width(12) < width(3)


def test_machines_are_drawn_from_what_is_plausible():
    corrections = Corrections.unknown(ForwardModel(lstm()))
    rng = np.random.default_rng(0)
    drawn = np.array([corrections.drawn(rng) for _ in range(400)])
    spread = corrections.model.spread
    assert np.all(np.abs(drawn.std(axis=0)[:4] / spread[:4] - 1.0) < 0.15)
    assert np.all(drawn >= corrections.model.least)


def test_of_equal_devices_one_that_is_slow_makes_the_other_suspect():
    model = ForwardModel(lstm())
    placements = placements_of(model.problem, 1)  # all on the first device
    seconds = 3.0 * model.seconds(model.as_taken, placements)
    values = estimate(model, placements, seconds, np.full(1, NOISE)).values()
    assert values[CPU0][0] < 0.4
    assert values[CPU0][0] < values[CPU1][0] < 0.7
    assert values[CPU1][1] < 0.4
