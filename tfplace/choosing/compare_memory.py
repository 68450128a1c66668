"""Given and placed, run on the devices that are there for their peak memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from graphs.op_graph import IntArray
from graphs.placement import Infeasible
from tfplace.choosing.baselines import GIVEN
from tfplace.choosing.compare import distinct_runs
from tfplace.choosing.order.model_order import simulated_in_order
from tfplace.measurement.peak_memory import measure_peaks
from tfplace.measurement.step_limits import StepLimits
from tfplace.preparing.prepare import PreparedModel


@dataclasses.dataclass(frozen=True)
class MemoryPeak:
    """Attributes: predicted_bytes; measured_bytes: None where no allocator counts it."""

    predicted_bytes: int
    measured_bytes: int | None


def compare_memory(
    prepared: PreparedModel, placements: Mapping[str, IntArray], limits: StepLimits
) -> dict[str, Mapping[str, MemoryPeak] | str]:
    """{name: {device: peak}, or a sentence why it could not run}: predicted beside measured.

    Args:
      prepared: the problem; its devices are present.
      placements: {name: i4[N]}; equal ones are run once.
      limits: time limits.
    """
    variants, alias = distinct_runs(prepared, placements)
    measured = measure_peaks(variants, prepared.training_run(), prepared.cluster, limits)
    plain = {GIVEN: dataclasses.replace(prepared, order=None)}
    return {
        name: _peaks(plain.get(name, prepared), placements[name], measured[alias[name]])
        for name in placements
    }


def _peaks(
    prepared: PreparedModel, device_of_op: IntArray, measured: Mapping[str, int] | Infeasible
) -> Mapping[str, MemoryPeak] | str:
    if isinstance(measured, Infeasible):
        return measured.message
    predicted = simulated_in_order(prepared, device_of_op).peak_bytes
    return {name: MemoryPeak(int(predicted[name]), measured.get(name)) for name in predicted}
