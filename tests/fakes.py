"""Evaluators whose best placement is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Infeasible, Measurement, Outcome


class WantedDevices:
    """One second, and one more for each op that does not lie where it is wanted."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self.wanted = np.array(wanted, dtype=np.int32)

    def evaluate(self, device_of_op: IntArray) -> list[Outcome]:
        wrong = (device_of_op != self.wanted).sum(axis=1)
        return [Measurement(1.0 + float(count), (), "simulated") for count in wrong]


class Always:
    """The same outcome for every placement."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def evaluate(self, device_of_op: IntArray) -> list[Outcome]:
        return [self.outcome] * len(device_of_op)


NEVER_FITS = Always(Infeasible("memory", "too large", (20, 20), 1.0))
CRASHES = Always(Infeasible("crash", "the process died"))
NOT_A_NUMBER = Always(Measurement(float("nan"), (), "measured"))
