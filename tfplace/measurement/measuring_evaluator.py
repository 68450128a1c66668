"""The evaluator that runs each placement for real."""

import contextlib
import copy
import logging
from collections.abc import Sequence

import numpy as np

from graphs.cluster import Cluster
from graphs.flat_graph import FlatGraph
from graphs.op_graph import IntArray
from graphs.problem import Infeasible, Measurement, Outcome
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.run_measurement import MAX_KILLS
from tfplace.measurement.training_run import (
    PrepareRequest,
    StepLimits,
    StepRequest,
    TrainingRun,
    exactly,
)

_LOGGER = logging.getLogger(__name__)

# As "A Hierarchical Model for Device Placement" (2018) rewards a placement: 10 steps, the
# first 5 dropped, the median of the rest. Preparing a run makes its first step.
HIERARCHICAL_STEPS = exactly(5, warmup_steps=4)


class MeasuringEvaluator(contextlib.AbstractContextManager["MeasuringEvaluator"]):
    """Times placements one after the other in one child process (implements trial.Evaluator).

    A placement that crashes, hangs or has too little memory is Infeasible, and the child is
    started anew for the next, or for the same one where somebody killed it. Use it as a context
    manager, or `close` it.
    """

    def __init__(
        self,
        flat: FlatGraph,
        op_of_node: IntArray,
        run: TrainingRun,
        cluster: Cluster,
        limits: StepLimits = HIERARCHICAL_STEPS,
    ) -> None:
        """Starts nothing yet.

        Args:
          op_of_node: i4[nodes of the flat graph] the op of the op graph that each belongs to.
          run: feeds, fetches and initialization, in names of the flat graph; its
            `source_graph` holds the ops of the initialization.
          cluster: its devices are what placements index.
          limits: warmup_steps and then min_steps are made; the budget does not matter.
        """
        self._graph = copy.deepcopy(flat.graph_def)
        # What a unit holds goes where the unit goes, whatever its functions ask for.
        for function in self._graph.library.function:
            for node in function.node_def:
                node.device = ""
        self._op_of_node = op_of_node.tolist()
        self._run = run
        self._devices = cluster.device_names
        self._limits = limits
        self._process = MeasuringProcess(cluster)

    def evaluate(self, device_of_op: IntArray) -> Sequence[Outcome]:
        """Outcomes [B] of placements i4[B, N], measured in order."""
        return [self._measure(placement) for placement in np.atleast_2d(device_of_op)]

    def close(self) -> None:
        """Ends the child; may be called twice."""
        self._process.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _measure(self, placement: IntArray) -> Outcome:
        for node, op in zip(self._graph.node, self._op_of_node, strict=True):
            node.device = self._devices[placement[op]]
        outcome = self._run_once()
        for _ in range(MAX_KILLS):
            if not isinstance(outcome, Infeasible) or outcome.reason != "crash":
                break
            if not self._process.was_killed:
                break
            _LOGGER.warning("a placement is tried again: %s", outcome.message)
            outcome = self._run_once()
        return outcome

    def _run_once(self) -> Outcome:
        limits, ask = self._limits, self._process.ask
        request = PrepareRequest(0, self._graph.SerializeToString(), self._run, seed=limits.seed)
        try:
            ask(request, limits)
            for _ in range(limits.warmup_steps):
                ask(StepRequest(0, 1), limits)
            seconds = [ask(StepRequest(0, 1), limits)[0] for _ in range(limits.min_steps)]
        except RunFailedError as failure:
            return failure.why
        return Measurement(float(np.median(seconds)), peak_bytes=(), source="measured")
