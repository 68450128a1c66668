"""Given and placed, run on the devices that are there for their peak memory."""

import dataclasses
import os
from collections.abc import Mapping

from graphs.cluster import Cluster
from graphs.function_library import bodies
from graphs.op_graph import IntArray
from graphs.problem import Infeasible
from graphs.protos import GraphDef
from tfplace.choosing.baselines import GIVEN
from tfplace.choosing.memory.predicted_peaks import predicted_peaks
from tfplace.choosing.real_runs.compare import distinct_runs
from tfplace.measurement.allocator import DevicePeak
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.training_run import PrepareRequest, StepLimits, StepRequest, TrainingRun
from tfplace.measurement.workers import executor_threads
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


NUM_STEPS = 3


def measure_peaks(
    variants: Mapping[str, GraphDef], run: TrainingRun, cluster: Cluster, limits: StepLimits
) -> dict[str, Mapping[str, DevicePeak] | Infeasible]:
    """{variant: {device: peak}}: the most that a device held in a step, variables included.

    A device whose allocator does not count, such as one of a task that was not started here, is
    missing. CPU allocators count only what takes 256 KiB or more (see `allocator`).

    Args:
      variants: {name: GraphDef with devices}, run one after the other.
      run: feeds, fetches and initialization, the same for all.
      cluster: where the devices are; workers without addresses are started and ended here.
      limits: time limits and seed; NUM_STEPS steps are made after the first.
    """
    # TensorFlow's plain allocator counts nothing, one with a limit does: all that this host has.
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") - 1
    devices = [
        dataclasses.replace(device, memory_bytes=min(device.memory_bytes, most))
        for device in cluster.devices
    ]
    cluster = dataclasses.replace(cluster, devices=devices)
    peaks: dict[str, Mapping[str, DevicePeak] | Infeasible] = {}
    for name, graph in variants.items():
        request = PrepareRequest(0, graph.SerializeToString(), run, seed=limits.seed)
        used = {node.device for _, body in bodies(graph) for node in body} - {""}
        # A fresh process each: what one variant leaves in memory would count for the next.
        with MeasuringProcess(cluster, executor_threads=executor_threads(len(used))) as process:
            try:
                process.peaks(True, limits.timeout_seconds)  # variables are recorded, too
                process.ask(request, limits)
                process.peaks(True, limits.timeout_seconds)
                process.ask(StepRequest(0, NUM_STEPS), limits)
            except RunFailedError as failure:
                peaks[name] = failure.why
                continue
            peaks[name] = process.peaks(False, limits.timeout_seconds)
    return peaks
