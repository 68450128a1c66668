"""Given and placed, run on the devices that are there for their peak memory, as predicted for that.

TensorFlow's executor takes up last what became ready first, so gradients of weights wait on its
stack while those of activations go on. The contract, section 6, says what is predicted.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.building.unseen_memory import copied_on_write
from graphs.cluster import Cluster
from graphs.executor_model import depth_first
from graphs.function_library import bodies
from graphs.op_graph import IntArray
from graphs.problem import Infeasible
from graphs.protos import GraphDef
from tfplace.choosing.baselines import GIVEN
from tfplace.choosing.real_runs.compare import distinct_runs
from tfplace.choosing.scheduling.edges import EdgedProblem, with_order_edges
from tfplace.choosing.scheduling.model_order import ModelOrder
from tfplace.measurement.allocator import DevicePeak
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.training_run import PrepareRequest, StepLimits, StepRequest, TrainingRun
from tfplace.measurement.workers import executor_threads
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.schedule import held_intervals, memory_use
from tfplace.simulation.simulator import Simulator

NUM_DRAWS = 9
"""Orders of the ops without inputs, of which the prediction is the median."""


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


def predicted_peaks(prepared: PreparedModel, device_of_op: IntArray) -> list[int]:
    """[D] bytes, a placement i4[N] run by TensorFlow's executor: of several draws the median.

    A variable that is updated while what was read of it is still needed is copied (TensorFlow's
    `PrepareToUpdateVariable`); the simulator's rule 6 doesn't know of that.
    """
    problem, order, of_node = prepared.problem, prepared.order, prepared.built.op_of_node
    edges = order.ordered(prepared, device_of_op).edges if isinstance(order, ModelOrder) else None
    slots = np.maximum(problem.device_slots, executor_threads(len(np.unique(device_of_op))))
    executor = problem.executor or depth_first(problem.graph.op_types, problem.num_devices)
    own = np.arange(problem.num_ops, dtype=np.int32)
    turn = own if prepared.op_turn is None else prepared.op_turn
    updates = [
        (int(of_node[update]), of_node[reads], int(held[of_node[variable]]))
        for held in [problem.graph.op_persistent_bytes]
        for update, reads, variable in copied_on_write(prepared.flat.graph_def.node)
    ]
    first, draws = np.setdiff1d(own, problem.graph.use_op), np.random.default_rng(0)
    found = []
    for _ in range(NUM_DRAWS):
        drawn = turn.copy()
        drawn[first] = turn[draws.permutation(first)]
        run = dataclasses.replace(
            problem, executor=dataclasses.replace(executor, op_turn=drawn[None]), device_slots=slots
        )
        edged = EdgedProblem(run, own) if edges is None else with_order_edges(run, edges)
        found.append(_peaks_of_run(edged, edged.renumbered(device_of_op), updates))
    return sorted(found, key=sum)[NUM_DRAWS // 2]


def _peaks_of_run(
    edged: EdgedProblem, device_of_op: IntArray, updates: Sequence[tuple[int, IntArray, int]]
) -> list[int]:
    """[D] bytes that a run holds, with copies of variables; `updates` have the model's numbers."""
    problem, graph = edged.problem, edged.problem.graph
    schedule = Simulator(problem, num_threads=1).schedule(device_of_op)
    held, own = held_intervals(problem, schedule), np.argsort(edged.op_at)
    ends, gives = np.full(problem.num_ops, -np.inf), np.flatnonzero(graph.tensor_output >= 0)
    np.maximum.at(ends, graph.tensor_producer[gives], held.end[gives])
    at, start = own[[update for update, _, _ in updates]], schedule.op_start
    until = np.array(
        [
            ends[reads[start[reads] < start[op]]].max(initial=-np.inf)
            for op, reads in zip(at, [own[reads] for _, reads, _ in updates], strict=True)
        ]
    )
    copied = until > start[at]
    sizes = np.array([size for _, _, size in updates], dtype=np.int64)
    at = at[copied]
    held = dataclasses.replace(
        held,
        device=np.concatenate([held.device, device_of_op[at]]),
        op=np.concatenate([held.op, at]),
        start=np.concatenate([held.start, start[at]]),
        end=np.concatenate([held.end, until[copied]]),
        bytes=np.concatenate([held.bytes, sizes[copied]]),
    )
    return [int(use.bytes.max(initial=0)) for use in memory_use(problem, schedule, held)]


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
