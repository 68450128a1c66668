"""What the comparison with given and single teaches, where no round of real runs came before it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from graphs.op_graph import IntArray
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.compare import Comparison
from tfplace.choosing.rounds.contest import Contest, forward_model
from tfplace.choosing.rounds.estimate import Corrections, estimate
from tfplace.choosing.rounds.plan import MeasuredStep, Round
from tfplace.choosing.rounds.step_times import noise_of_median
from tfplace.choosing.unsplit_baselines import predicted
from tfplace.measurement.timing import Timing
from tfplace.preparing.prepare import PreparedModel

_P10_TO_P90 = 2.5631
"""Standard deviations between a normal variable's 10th and 90th percentile."""


def taught_by(
    prepared: PreparedModel,
    winner: Candidate,
    placements: Mapping[str, IntArray],
    timings: Comparison,
) -> Contest | None:
    """The comparison as a round; None where nothing ran.

    Args:
      prepared: the problem; its devices are present.
      winner: the placement that is compared.
      placements: {name: i4[N]} what was timed.
      timings: of these.
    """
    ran = {
        name: each
        for name, each in timings.timings.items()
        if isinstance(each, Timing) and name in placements and name not in timings.same_as
    }
    if not ran:
        return None
    model = forward_model(prepared)
    steps = np.array([placements[name] for name in ran], dtype=np.int32)
    seconds = np.array([each.median_seconds for each in ran.values()])
    before = Corrections.unknown(model).seconds(steps)
    corrections = estimate(model, steps, seconds, np.array([_noise(each) for each in ran.values()]))
    measured = [
        MeasuredStep(name, float(b), float(s))
        for name, b, s in zip(ran, before, seconds, strict=True)
    ]
    found = predicted(corrections.problem, [winner])[0]
    return Contest(found, (), [Round(measured, corrections.values())], corrections)


def _noise(timing: Timing) -> float:
    """The standard deviation of the log of a median."""
    return noise_of_median(math.log(timing.p90 / timing.p10) / _P10_TO_P90, timing.runs)
