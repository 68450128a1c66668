"""Times training runs of several variants of a graph side by side, in a child process."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphs.cluster import Cluster
from graphs.op_graph import FloatArray
from graphs.placement import Infeasible
from tfplace.evaluation.measuring_process import MeasuringProcess
from tfplace.evaluation.training_run import (
    Prepared,
    PrepareRequest,
    ReleaseRequest,
    StepRequest,
    TrainingRun,
)

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class MeasureConfig:
    """How long to measure.

    Attributes:
      warmup_steps: steps after the first that are not counted, >= 0.
      min_steps: steps to time even if they exceed the budget, >= 1; SPEC section 5 wants 10.
      max_steps: steps to time at most.
      timeout_seconds: the longest that one step may take.
      prepare_timeout_seconds: the longest that import, initialization and first step may take.
      budget_seconds: no further round starts after this time, once min_steps are timed.
      seed: of the values of variables that nothing initialises.
      num_logical_cpus: CPU devices that this host's cores are shown as; they share one thread
        pool, so more than 1 is for correctness, not for speed.
      soft_placement: TensorFlow's option; see RuntimeConfig.
    """

    warmup_steps: int = 3
    min_steps: int = 10
    max_steps: int = 100
    timeout_seconds: float = 120.0
    prepare_timeout_seconds: float = 300.0
    budget_seconds: float = 30.0
    seed: int = 0
    num_logical_cpus: int = 1
    soft_placement: bool = False


@dataclasses.dataclass(frozen=True)
class Timings:
    """Step times of one variant.

    Attributes:
      step_seconds: f8[runs] wall time of each counted step, in order.
      through: "tf.function" or "session".
      why: why a session, else empty.
      first_outputs: fetched tensors of the first step after initialization.
      interleaved: whether other variants' steps ran in between; not where they do not fit
        into memory together.
    """

    step_seconds: FloatArray
    through: str
    why: str
    first_outputs: Mapping[str, np.ndarray]
    interleaved: bool


def measure_variants(
    variants: Mapping[str, Any], run: TrainingRun, cluster: Cluster, config: MeasureConfig
) -> dict[str, Timings | Infeasible]:
    """Times a step of each variant, interleaved A B A B …, so that all see the same machine.

    A variant that crashes, hangs or runs out of memory is Infeasible; the others go on in a
    new child. One that has too little memory beside the others is timed alone.

    Args:
      variants: {name: GraphDef with devices}; equal but for the devices.
      run: feeds, fetches and initialization, the same for all.
      cluster: where the devices are; workers without addresses are started and ended here.
    """
    with MeasuringProcess(cluster, config.num_logical_cpus, config.soft_placement) as process:
        comparison = _Comparison(variants, run, config, process)
        results = comparison.results()
        for name, result in results.items():
            if len(variants) > 1 and isinstance(result, Infeasible) and result.reason == "memory":
                _LOGGER.warning("%s does not fit beside the other variants: timing it alone", name)
                process.close()
                alone = _Comparison({name: variants[name]}, run, config, process)
                again = alone.results()[name]
                if isinstance(again, Timings):
                    results[name] = dataclasses.replace(again, interleaved=False)
    return results


class _Comparison:
    """One interleaved measurement; survives the loss of its child."""

    def __init__(
        self,
        variants: Mapping[str, Any],
        run: TrainingRun,
        config: MeasureConfig,
        process: MeasuringProcess,
    ) -> None:
        self._graphs = {name: graph.SerializeToString() for name, graph in variants.items()}
        self._slots = {name: slot for slot, name in enumerate(variants)}
        self._run = run
        self._config = config
        self._process = process
        self._through = "auto"
        self._prepared: dict[str, Prepared] = {}
        self._failed: dict[str, Infeasible] = {}
        self._seconds: dict[str, list[float]] = {name: [] for name in variants}

    def results(self) -> dict[str, Timings | Infeasible]:
        self._prepare_all()
        self._warm_up()
        self._time_rounds()
        return {
            name: self._failed.get(name) or self._timings(name, self._prepared[name])
            for name in self._slots
        }

    def _timings(self, name: str, prepared: Prepared) -> Timings:
        seconds = np.asarray(self._seconds[name])
        return Timings(seconds, prepared.through, prepared.why, prepared.outputs, True)

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
        request = PrepareRequest(
            self._slots[name],
            self._graphs[name],
            self._run,
            through=self._through,
            seed=self._config.seed,
        )
        answer = self._process.request(request, self._config.prepare_timeout_seconds)
        if isinstance(answer, Infeasible):
            self._fail(name, answer)
        else:
            self._prepared[name] = answer

    def _step(self, name: str) -> float | None:
        """Seconds of one step, or None when it failed; then the others are prepared again."""
        request = StepRequest(self._slots[name], 1)
        answer = self._process.request(request, self._config.timeout_seconds)
        if not isinstance(answer, Infeasible):
            return float(answer[0])
        self._fail(name, answer)
        if not self._process.alive:
            self._prepare_all()
            self._warm_up()
        return None

    def _fail(self, name: str, failure: Infeasible) -> None:
        _LOGGER.warning("%s can't run (%s): %s", name, failure.reason, failure.message)
        self._failed[name] = failure
        if self._process.alive:
            self._process.request(ReleaseRequest(self._slots[name]), self._config.timeout_seconds)

    def _warm_up(self) -> None:
        for _ in range(self._config.warmup_steps):
            for name in self._running():
                if name not in self._failed:
                    self._step(name)

    def _time_rounds(self) -> None:
        end = time.monotonic() + self._config.budget_seconds
        for step in range(self._config.max_steps):
            if step >= self._config.min_steps and time.monotonic() > end:
                return
            for name in self._running():
                if name in self._failed:
                    continue
                seconds = self._step(name)
                if seconds is not None:
                    self._seconds[name].append(seconds)
