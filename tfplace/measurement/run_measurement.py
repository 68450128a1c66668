"""Times training runs of several variants of a graph side by side, in a child process.

And looks for the most that devices hold in them.
"""

import dataclasses
import logging
import os
import time
from collections.abc import Mapping

import numpy as np

from graphs.cluster import Cluster
from graphs.function_library import bodies
from graphs.op_graph import FloatArray
from graphs.problem import Infeasible
from graphs.protos import GraphDef
from tfplace.measurement.allocator import DevicePeak
from tfplace.measurement.held_runs import HeldRuns, keys_of
from tfplace.measurement.machine_load import LoadMeter
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.timing import confidence_of_look, is_precise, looks_at, speedup, summarize
from tfplace.measurement.training_run import (
    PreparedRun,
    PrepareRequest,
    StepLimits,
    StepRequest,
    TrainingRun,
)
from tfplace.measurement.workers import executor_threads
from tfplace.units_text import seconds_text

_LOGGER = logging.getLogger(__name__)
MAX_KILLS = 3
"""How often a run is tried again after somebody killed one of its processes.

That says nothing about the placement, unlike a process that aborts by itself.
"""
WARM_SECONDS = 1.5
"""No run is warmed up any longer: what is slow in a first step is not so in a second long one."""


@dataclasses.dataclass(frozen=True)
class Timings:
    """Step times of one variant.

    Attributes:
      step_seconds: f8[runs] wall time of each counted step, in order.
      through: "tf.function" or "session".
      first_outputs: fetched tensors of the first step after initialization.
      interleaved: whether other variants' steps ran in between; not where they do not fit
        into memory together.
      background_share: share of this machine's CPU time that other processes took meanwhile;
        None where it is not known, as over tasks that were not started here.
    """

    step_seconds: FloatArray
    through: str
    first_outputs: Mapping[str, np.ndarray]
    interleaved: bool
    background_share: float | None = None

    @property
    def median_seconds(self) -> float:
        return summarize(self.step_seconds).median_seconds


def measure_variants(
    variants: Mapping[str, GraphDef],
    run: TrainingRun | Mapping[str, TrainingRun],
    cluster: Cluster,
    limits: StepLimits,
    compared: str = "",
    held: HeldRuns | None = None,
) -> dict[str, Timings | Infeasible]:
    """Times a step of each variant, interleaved A B A B …, so that all see the same machine.

    A variant that crashes, hangs or runs out of memory is Infeasible; the others go on in a
    new child. One that has too little memory beside the others is timed alone; one whose
    process somebody killed is tried again.

    Args:
      variants: {name: GraphDef with devices}.
      run: feeds, fetches and initialization; {name: each one's} where graphs differ in more than
        their devices.
      cluster: where the devices are; workers without addresses are started and ended here.
      limits: between min_steps and max_steps, timing stops at a look (`timing.looks_at`) that
        finds the answer clear.
      compared: the variant whose step time is compared with each other's: the answer is clear
        when all these comparisons are; empty: when every median is precise.
      held: where runs stay prepared that are measured more often; None: in a child of their own,
        which has limits.all_seconds for everything.
    """
    if held is None:
        with held_runs(cluster, limits.all_seconds) as held:
            return measure_variants(variants, run, cluster, limits, compared, held)
    held.wait()
    results = _Comparison(variants, run, limits, compared, held).results()
    for name, result in results.items():
        if len(variants) > 1 and isinstance(result, Infeasible) and result.reason == "memory":
            _LOGGER.warning("%s does not fit beside the other variants: timing it alone", name)
            held.process.close()
            alone = _Comparison({name: variants[name]}, run, limits, compared, held)
            again = alone.results()[name]
            if isinstance(again, Timings):
                results[name] = dataclasses.replace(again, interleaved=False)
    return results


def held_runs(cluster: Cluster, all_seconds: float, capacity: int = 1_000_000) -> HeldRuns:
    """A child that holds up to `capacity` runs, for `all_seconds` from now on."""
    return HeldRuns(MeasuringProcess(cluster, all_seconds=all_seconds), capacity)


class _Comparison:
    """One interleaved measurement; the others go on in a new child where one ends it."""

    def __init__(
        self,
        variants: Mapping[str, GraphDef],
        run: TrainingRun | Mapping[str, TrainingRun],
        limits: StepLimits,
        compared: str,
        held: HeldRuns,
    ) -> None:
        self._graphs = {name: graph.SerializeToString() for name, graph in variants.items()}
        self._runs = run if isinstance(run, Mapping) else dict.fromkeys(variants, run)
        self._keys = keys_of(self._graphs, self._runs)
        held.make_room(set(self._keys.values()))
        self._held = held
        self._slots = {name: held.slot(key) for name, key in self._keys.items()}
        self._limits = limits
        self._needed = min(limits.min_steps, limits.least_steps)
        self._compared = compared
        self._process = held.process
        self._through = "auto"
        self._prepared: dict[str, PreparedRun] = {}
        self._failed: dict[str, Infeasible] = {}
        self._seconds: dict[str, list[float]] = {name: [] for name in variants}
        self._num_kills = 0
        self._load = LoadMeter()
        self._round_seconds = 0.0
        """What the last round of warming up took, one step of each."""
        self._time_to_count = 0.0
        """What was left for steps that count."""

    def results(self) -> dict[str, Timings | Infeasible]:
        self._prepare_all()
        self._warm_up()
        self._time_rounds()
        self._fail_unfinished()
        return {
            name: self._failed.get(name) or self._timings(name, self._prepared[name])
            for name in self._slots
        }

    def _fail_unfinished(self) -> None:
        """Too few steps say nothing: a variant that made less than least_steps has no time."""
        for name in self._running():
            made, wanted = len(self._seconds[name]), self._limits.min_steps
            if made < self._needed:
                why = f"it made {made} of {wanted} steps in the time for real runs"
                if self._round_seconds:
                    why += (
                        f", {seconds_text(self._time_to_count)} after warming up: {wanted} of each "
                        f"take about {seconds_text(wanted * self._round_seconds)}"
                    )
                self._failed[name] = Infeasible("timeout", f"{why}; give a longer --budget_seconds")

    def _timings(self, name: str, prepared: PreparedRun) -> Timings:
        seconds = np.asarray(self._seconds[name])
        return Timings(
            seconds,
            prepared.through,
            prepared.outputs,
            interleaved=True,
            background_share=self._load.background_share,
        )

    def _running(self) -> list[str]:
        return [name for name in self._slots if name not in self._failed]

    def _prepare_all(self) -> None:
        """Prepares every variant, all through the same way, in one child that has them all."""
        while True:
            for name in self._running():
                self._prepare(name)
                if not self._process.alive:  # what was prepared before is gone with it
                    break
            else:
                if len({self._prepared[name].through for name in self._running()}) <= 1:
                    return
                self._through = "session"

    def _prepare(self, name: str) -> None:
        known = self._held.known(self._keys[name], self._through)
        if known is not None:
            self._prepared[name] = known
            return
        request = PrepareRequest(
            self._slots[name],
            self._graphs[name],
            self._runs[name],
            through=self._through,
            seed=self._limits.seed,
        )
        answer = self._process.request(request, self._limits.prepare_timeout_seconds)
        if isinstance(answer, Infeasible):
            self._fail(name, answer)
        else:
            self._prepared[name] = answer
            self._held.note(self._keys[name], answer)

    def _step(self, name: str) -> float | None:
        """Seconds of one step, or None when it failed; then the others are prepared again."""
        request = StepRequest(self._slots[name], 1)
        answer = self._process.request(request, self._limits.timeout_seconds)
        if not isinstance(answer, Infeasible):
            return float(answer[0])
        if self._process.seconds_left <= 0.0:  # that says nothing about the variant
            return None
        self._fail(name, answer)
        if not self._process.alive:
            self._prepare_all()
            self._warm_up()
        return None

    def _fail(self, name: str, failure: Infeasible) -> None:
        if failure.reason == "crash" and self._process.was_killed and self._num_kills < MAX_KILLS:
            self._num_kills += 1
            _LOGGER.warning("%s is tried again: %s", name, failure.message)
            return
        _LOGGER.warning("%s can't run (%s): %s", name, failure.reason, failure.message)
        self._failed[name] = failure
        if self._process.alive:
            self._held.release(self._keys[name], self._limits.timeout_seconds)

    def _warm_up(self) -> None:
        """Fewer steps where they are long, or else there would be no time for those that count.

        A round that takes all the time for warming up is the first one that counts.
        """
        end = time.monotonic() + WARM_SECONDS
        for _ in range(self._limits.warmup_steps):
            began = time.monotonic()
            if began > end:
                break
            is_whole = self._time_round()
            self._round_seconds = time.monotonic() - began
            if is_whole and self._round_seconds < WARM_SECONDS:
                for name in self._running():
                    self._seconds[name].pop()
            if self._process.seconds_left < (self._limits.min_steps + 1) * self._round_seconds:
                break
        self._time_to_count = max(self._process.seconds_left, 0.0)

    def _time_rounds(self) -> None:
        limits = self._limits
        num_rounds = max((len(self._seconds[name]) for name in self._running()), default=0)
        if self._time_to_count < (self._needed - num_rounds) * self._round_seconds:
            return  # others need the time
        end = time.monotonic() + limits.budget_seconds
        looks = looks_at(limits.min_steps, limits.max_steps)
        slowest = 0.0
        while num_rounds < limits.max_steps and self._running():
            began = time.monotonic()
            if self._process.seconds_left <= slowest:  # another round would not end in time
                return
            if num_rounds >= limits.min_steps and time.monotonic() > end:
                return
            if num_rounds in looks and self._is_clear(confidence_of_look(looks)):
                return
            num_rounds += self._time_round()
            slowest = max(slowest, time.monotonic() - began)

    def _time_round(self) -> bool:
        """One step of each; counts only where all that go on made theirs, so that they pair."""
        self._read_load()
        seconds: dict[str, float] = {}
        for name in self._running():
            step = None if name in self._failed else self._step(name)
            if step is not None:
                seconds[name] = step
        self._read_load()
        names = self._running()
        is_whole = all(name in seconds for name in names)
        for name in names if is_whole else ():
            self._seconds[name].append(seconds[name])
        return is_whole

    def _read_load(self) -> None:
        if self._process.owns_all_tasks:
            self._load.read(self._process.process_ids)

    def _is_clear(self, confidence: float) -> bool:
        """Whether more rounds would not change what the comparison says."""
        seconds = {name: np.asarray(self._seconds[name]) for name in self._running()}
        if not all(len(values) for values in seconds.values()):
            return False
        placed = seconds.pop(self._compared, None)
        seed = self._limits.seed
        if placed is None or not seconds:
            every = [*seconds.values(), *([] if placed is None else [placed])]
            return all(is_precise(values, seed, confidence) for values in every)
        return all(speedup(s, placed, seed, confidence).is_clear for s in seconds.values())


NUM_STEPS, LASTING = 3, 30
"""In which the most that a device holds is looked for; and for which an allocator is to last."""


def measure_peaks(
    variants: Mapping[str, GraphDef],
    run: TrainingRun,
    cluster: Cluster,
    limits: StepLimits,
    seconds: float = 0.0,
) -> dict[str, Mapping[str, DevicePeak] | Infeasible]:
    """{variant: {device: peak}}: the most that a device held in a step, variables included.

    A device whose allocator does not count, such as one of a task that was not started here, is
    missing.

    Args:
      variants: {name: GraphDef with devices}, run one after the other.
      run: feeds, fetches and initialization, the same for all.
      cluster: where the devices are; workers without addresses are started and ended here.
      limits: time limits and seed; NUM_STEPS steps are made after the first.
      seconds: as long, more steps are made, LASTING at most: gaps may grow from step to step.
    """
    # A CPU's own allocator does not count all, one with a limit does: all that this host has.
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
                until = time.monotonic() + seconds
                for _ in range(LASTING - NUM_STEPS):
                    if time.monotonic() > until:
                        break
                    process.ask(StepRequest(0, 1), limits)
            except RunFailedError as failure:
                peaks[name] = failure.why
                continue
            peaks[name] = process.peaks(False, limits.timeout_seconds)
    return peaks
