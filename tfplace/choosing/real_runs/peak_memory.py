"""Given and placed, run on the devices that are there for their peak memory."""

import dataclasses
from collections.abc import Mapping

from graphs.op_graph import IntArray
from graphs.problem import Infeasible
from tfplace.choosing.baselines import GIVEN
from tfplace.choosing.memory.predicted_peaks import predicted_peaks
from tfplace.choosing.real_runs.compare import distinct_runs
from tfplace.measurement.allocator import DevicePeak
from tfplace.measurement.run_measurement import measure_peaks
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.prepare import PreparedModel


@dataclasses.dataclass(frozen=True)
class MemoryPeak:
    """A device's peak in a step.

    Attributes:
      predicted_bytes: by the simulator.
      measured_bytes: what ops asked for at a time; as `allocator_bytes` where that is not known.
      allocator_bytes: what its allocator counts, in chunks; None where it counts nothing.
    """

    predicted_bytes: int
    measured_bytes: int | None
    allocator_bytes: int | None = None


def compare_memory(
    prepared: PreparedModel, placements: Mapping[str, IntArray], limits: StepLimits
) -> dict[str, Mapping[str, MemoryPeak] | str]:
    """{name: {device: peak}, or a sentence why it could not run}: predicted beside measured.

    Args:
      prepared: the problem; its devices are present.
      placements: {name: i4[N]}; equal ones are run once.
    """
    variants, alias = distinct_runs(prepared, placements)
    measured = measure_peaks(variants, prepared.training_run(), prepared.cluster, limits)
    plain = {GIVEN: dataclasses.replace(prepared, order=None)}
    return {
        name: _peaks(plain.get(name, prepared), placements[name], measured[alias[name]])
        for name in placements
    }


def _peaks(
    prepared: PreparedModel, device_of_op: IntArray, measured: Mapping[str, DevicePeak] | Infeasible
) -> Mapping[str, MemoryPeak] | str:
    if isinstance(measured, Infeasible):
        return measured.message
    names = prepared.problem.device_names
    predicted = dict(zip(names, predicted_peaks(prepared, device_of_op), strict=True))
    peaks = {name: MemoryPeak(predicted[name], None) for name in predicted}
    for name, peak in measured.items():
        asked = peak.counted if peak.asked is None else peak.asked
        peaks[name] = MemoryPeak(predicted[name], asked, peak.counted)
    return peaks
