"""Tests of the choice by prediction."""

from __future__ import annotations

import numpy as np
import pytest

from graphs.placement import Measurement
from tests.builders import Op, build_problem
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.choose import choose

SPLIT = np.array([0, 1], np.int32)


@pytest.mark.parametrize(
    ("pin", "verdict", "sentence"),
    [
        (1, "kept_given", "constraints and kernels leave every op one device"),
        (-1, "kept_single", "one device is best: no placement over several beats it"),
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
