"""Times probes in turn, round by round, so that all of them see the same machine."""

import time
from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np

from graphs.cluster import Cluster
from graphs.errors import ClusterError
from graphs.op_graph import FloatArray
from graphs.problem import Infeasible
from graphs.protos import Pickled
from tfplace.measurement.calibration.probe_graphs import Probe
from tfplace.measurement.machine_load import LoadMeter
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.training_run import PrepareRequest, ReleaseRequest, StepLimits, StepRequest

Key = TypeVar("Key", bound=Hashable)
PROBE_STEPS = StepLimits(warmup_steps=2, min_steps=5, max_steps=25, timeout_seconds=60.0)
"""Of each probe; preparing one may take no longer than a step."""


class ProbeFailedError(ClusterError):
    """A probe could not be run: `why`, because a device or a link does not work."""

    def __init__(self, cluster: str, why: Infeasible) -> None:
        super().__init__(
            f"calibrating {cluster}: a step on its devices failed ({why.reason}): {why.message}; "
            "see that all its tasks run and can reach each other, then calibrate again"
        )
        self.why = why


def median_difference(seconds: FloatArray, less: FloatArray) -> float:
    """What one probe takes longer than another: the median over rounds f8[R] of both.

    They differ round by round, so that what is equal in both (a step's dispatch) and what drifts
    on the machine drop out.
    """
    return float(np.median(seconds - less))


class Prober:
    """Runs probes on the devices of one cluster, through tf.function as measured steps run."""

    def __init__(self, process: MeasuringProcess, cluster: Cluster, limits: StepLimits) -> None:
        self._process = process
        self._cluster = cluster
        self._limits = limits
        self.load = LoadMeter()

    def time(self, probes: Mapping[Key, Probe], budget_seconds: float) -> dict[Key, FloatArray]:
        """{key: f8[rounds] seconds of a step}; round i of one ran beside round i of the others.

        Args:
          budget_seconds: no round starts after it, once there are min_steps.

        Raises:
          ProbeFailedError: a device or a link does not work.
        """
        end = time.monotonic() + budget_seconds
        slots = {key: slot for slot, key in enumerate(probes)}
        for key, probe in probes.items():
            graph = probe.graph_def.SerializeToString()
            # A Session would dispatch differently: then there is nothing to calibrate.
            request = PrepareRequest(slots[key], graph, probe.run, through="tf.function")
            self._request(request)
            self._request(StepRequest(slots[key], self._limits.warmup_steps))
        self.load.read(self._process.process_ids)
        seconds: dict[Key, list[float]] = {key: [] for key in probes}
        for round_index in range(self._limits.max_steps):
            if round_index >= self._limits.min_steps and time.monotonic() > end:
                break
            for key, slot in slots.items():
                seconds[key].append(float(self._request(StepRequest(slot, 1))[0]))
        self.load.read(self._process.process_ids)
        for slot in slots.values():
            self._request(ReleaseRequest(slot))
        return {key: np.array(of_key) for key, of_key in seconds.items()}

    def _request(self, request: PrepareRequest | StepRequest | ReleaseRequest) -> Pickled:
        answer = self._process.request(request, self._limits.timeout_seconds)
        if isinstance(answer, Infeasible):
            raise ProbeFailedError(self._cluster.name, answer)
        return answer
