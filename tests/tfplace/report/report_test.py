"""The report's derived values, and how values become JSON."""

import dataclasses

import numpy as np
import pytest

from tests.builders import chain
from tests.tfplace.report.made_up import made_up
from tfplace.choosing.run_results import Comparison
from tfplace.measurement.timing import Timing
from tfplace.report.report import comparison_to_json, gap_text, plain

OPTIMAL = "no placement is faster: proven optimal, as the simulator counts"


@pytest.mark.parametrize(
    ("bound", "gap", "sentence"),
    [
        (None, None, ""),
        (0.0, None, ""),
        (2.0, 0.0, OPTIMAL),
        (2.0 / (1 + 1e-7), pytest.approx(1e-7), OPTIMAL),
        (1.6, pytest.approx(0.25),
         "no placement can be faster than 1.6 s; this one is within 25 %"),
    ],
)  # fmt: skip
def test_the_gap_and_what_it_proves(bound, gap, sentence):
    report, _ = made_up(chain(2), [0, 0])
    report = dataclasses.replace(report, lower_bound_seconds=bound)
    assert report.best.step_seconds == 2.0
    assert report.gap == gap
    assert report.bound_sentence == sentence
    assert report.to_json()["gap"] == gap


@pytest.mark.parametrize(
    ("gap", "text"),
    [(0.0123, "1.2 %"), (0.00004, "0.004 %"), (0.994, "99 %"), (0.996, "100 %"), (12.3, "1230 %")],
)
def test_gaps_have_two_digits(gap, text):
    assert gap_text(gap) == text


def test_values_become_what_json_has():
    timing = Timing(float("nan"), 1.0, float("inf"), 3)
    assert plain({1: (timing, None, True), "array": np.arange(2.0), "number": np.int64(4)}) == {
        "1": [
            {"median_seconds": None, "p10": 1.0, "p90": None, "runs": 3, "outliers": 0,
             "drift": 0.0},
            None,
            True,
        ],
        "array": [0.0, 1.0],
        "number": 4,
    }  # fmt: skip


def test_timings_stand_under_the_placements_names():
    comparison = Comparison({"given": "it died"}, "", 1.0, (1.0, 1.0), "session")
    assert comparison_to_json(comparison) == {
        "given": "it died",
        "baseline": "",
        "speedup": 1.0,
        "speedup_ci95": [1.0, 1.0],
        "through": "session",
        "verdict": "",
        "background_share": None,
        "noise": [],
        "tried": [],
        "same_as": {},
    }


def test_a_report_without_real_runs_says_so():
    report, _ = made_up(chain(2), [0, 1])
    assert dataclasses.replace(report, measured=None).to_json()["measured"] is None
