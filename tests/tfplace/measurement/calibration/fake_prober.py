"""A prober that runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import numpy as np

from graphs.op_graph import FloatArray
from tfplace.measurement.calibration.probe_graphs import Probe


class FakeProber:
    """Its steps take what a function of the probe's key says: f8[rounds], or a number each time."""

    def __init__(self, seconds_of: Callable[..., FloatArray | float], num_rounds: int = 4) -> None:
        self._seconds_of, self._num_rounds = seconds_of, num_rounds

    def time(
        self, probes: Mapping[Hashable, Probe], budget_seconds: float
    ) -> dict[Hashable, FloatArray]:
        return {key: self._seconds_of(*key) * np.ones(self._num_rounds) for key in probes}  # type: ignore[misc]
