"""Tests of the choice by prediction."""

from __future__ import annotations

import numpy as np
import pytest

from graphs.problem import Measurement
from tests.builders import Machine, Op, build_problem
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.choose import Choice, choose, confirmed
from tfplace.choosing.run_results import Comparison
from tfplace.measurement.timing import NO_DIFFERENCE, SLOWER

SPLIT = np.array([0, 1], np.int32)


@pytest.mark.parametrize(
    ("pin", "verdict", "sentence"),
    [
        (
            1,
            "kept_given",
            "constraints and kernels leave every op one device; 1.000 of one device's step time "
            "without the pins",
        ),
        (-1, "kept_single", "one device is best: none found over several beats it"),
    ],
)
def test_one_device_is_best_only_where_there_was_a_choice(pin, verdict, sentence):
    problem = build_problem([Op("first", pin=0), Op("second", pin=pin)])
    one = SPLIT if pin == 1 else np.zeros(2, np.int32)
    candidates = [
        Candidate(name, one, Measurement(2.0, (0, 0), "simulated")) for name in ("given", "single")
    ]
    choice = choose(candidates, problem)
    assert (choice.verdict, choice.sentence) == (verdict, sentence)
    assert choice.candidate is candidates[verdict == "kept_single"]


def test_one_device_is_not_said_to_hold_what_is_pinned_elsewhere():
    problem = build_problem([Op("first", pin=0), Op("second"), Op("third")])
    places = np.array([0, 1, 1], np.int32)
    found = [
        Candidate(name, places, Measurement(2.0, (0, 0), "simulated"))
        for name in ("given", "single")
    ]
    choice = choose(found, problem)
    assert (choice.verdict, choice.sentence) == (
        "kept_single",
        "one device, but for ops that have to lie elsewhere, is best: none found over several "
        "beats it",
    )


def test_a_split_step_is_compared_with_the_unsplit_one_and_is_no_single_device():
    problem = build_problem([Op("first"), Op("second")])
    one = np.ones(2, np.int32)

    def steps(seconds):
        outcome = Measurement(seconds, (0, 0), "simulated")
        return [Candidate(name, one, outcome) for name in ("given", "single")]

    choice = choose(steps(2.0), problem, unsplit=steps(4.0))
    assert choice.verdict == "placed"
    assert choice.sentence == (
        "predicted, not measured: 0.500 of the best single device's step time (all on one device)"
    )


def test_a_cpu_beside_gpus_is_named_where_it_is_the_best_single_device():
    problem = build_problem([Op("first"), Op("second")], Machine(3))

    def sentence(single_device):
        found = {
            "given": ([1, 1], 4.0),
            "single": ([single_device] * 2, 4.0),
            "found": ([1, 2], 1.0),
        }
        return choose(
            [
                Candidate(
                    name, np.array(device, np.int32), Measurement(seconds, (0, 0, 0), "simulated")
                )
                for name, (device, seconds) in found.items()
            ],
            problem,
        ).sentence

    assert "the best single device's (/device:CPU:0) step time" in sentence(0)
    assert "the best single device's step time" in sentence(1)


def _kept_after(verdict, real, speedup=1.0, **facts):
    """What is kept of a choice by prediction after real runs with this verdict."""
    one, both = np.zeros(2, np.int32), np.array([0, 1], np.int32)
    outcome = Measurement(2.0, (0, 0), "simulated")
    candidates = [Candidate("given", both, outcome), Candidate("single", one, outcome)]
    chosen = candidates[1] if verdict == "kept_single" else Candidate("found", both, outcome)
    interval = (speedup - 0.1, speedup + 0.1)
    measured = Comparison({}, "given", speedup, interval, "tf.function", real, **facts)
    problem = build_problem([Op("first"), Op("second")])
    return confirmed(Choice(chosen, verdict, "as predicted"), candidates, measured, problem)


def test_one_device_that_measures_slower_than_the_given_placement_is_not_kept():
    kept = _kept_after("kept_single", SLOWER, 0.5)
    assert (kept.verdict, kept.candidate.name) == ("kept_given", "given")
    assert kept.sentence == (
        "one device, the best by prediction, measured 0.50x (95 % interval 0.40 to 0.60) as fast "
        "as the given placement, which is kept"
    )
    assert _kept_after("kept_single", NO_DIFFERENCE).sentence == "as predicted"


def test_a_placement_that_is_compared_with_itself_has_no_ratio():
    kept = _kept_after("placed", NO_DIFFERENCE, same_as={"placed": "given"})
    assert kept.verdict == "kept_given"
    assert kept.sentence == (
        "in real runs of the best few placements the given placement was the fastest"
    )


GPUS = Machine(3)


def _of_gpus(**placements):
    return [
        Candidate(name, np.array(places, np.int32), Measurement(seconds, (0, 0, 0), "simulated"))
        for name, (places, seconds) in placements.items()
    ]


@pytest.mark.parametrize(
    ("pins", "sentence"),
    [
        (
            (1, 2),
            "constraints and kernels leave every op one device; 1.000 of one device's step time "
            "without the pins",
        ),
        (
            (1, 2, -1),
            "what is not pinned lies on one device: none found over several beats that; 0.667 of "
            "one device's step time without the pins",
        ),
    ],
)
def test_a_plan_that_pins_spread_over_devices_is_no_single_device(pins, sentence):
    """The best single device is that of what is not pinned."""
    problem = build_problem([Op(f"op{i}", pin=pin) for i, pin in enumerate(pins)], GPUS)
    given, pinned = [1] * len(pins), [1, 2, 1][: len(pins)]
    candidates = _of_gpus(given=(given, np.inf), single=(pinned, 2.0))
    choice = choose(candidates, problem)
    assert (choice.verdict, choice.sentence) == ("placed", sentence)
    measured = Comparison({}, "single", 1.0, (0.9, 1.1), "tf.function", NO_DIFFERENCE)
    assert confirmed(choice, candidates, measured, problem).verdict == "placed"


@pytest.mark.parametrize(
    ("single", "is_timed", "verdict", "sentence"),
    [
        (4.0, False, "kept_single", "one device is kept: no step could be measured"),
        (np.inf, False, "placed", "predicted, not measured: 0.5"),
        (4.0, True, "placed", "the fastest of what was timed, though not beside one device"),
    ],
)
def test_nothing_is_spread_over_devices_on_prediction_alone(single, is_timed, verdict, sentence):
    problem = build_problem([Op("first"), Op("second")], GPUS)
    candidates = _of_gpus(given=([1, 1], 4.0), single=([1, 1], single), found=([1, 2], 2.0))
    nothing = Comparison({"single": "no time"}, "", 1.0, (1.0, 1.0), "tf.function")
    kept = confirmed(choose(candidates, problem), candidates, nothing, problem, is_timed)
    assert kept.verdict == verdict and kept.sentence.startswith(sentence)
