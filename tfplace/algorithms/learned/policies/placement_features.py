"""What Placeto's policy is told about a half-placed problem: groups, devices, relations.

All of it is relative (shares of the problem's reference time, of memory), so that a policy
trained on one model and cluster can read another.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from graphs.op_graph import FloatArray, IntArray
from tfplace.algorithms.learned.features import FeatureArray, group_adjacency, group_traffic
from tfplace.algorithms.learned.learning.appraisal import reference_seconds
from tfplace.algorithms.learned.policies.graph_embedding import GraphRelations
from tfplace.grouping.grouped_problem import GroupedProblem
from tfplace.grouping.quotient import group_sums

GROUP_WIDTH = 5
DEVICE_WIDTH = 9


@dataclasses.dataclass(frozen=True)
class EpisodeFeatures:
    """The parts that don't change during a search.

    Attributes:
      seconds: f8[G, D] of each group on each device, relative to the mean group's; where a
        group may not lie, its fastest.
      traffic: f8[G, G] seconds of moving what group i sends to group j over the mean link,
        relative to the mean group's seconds.
      bytes_share: f8[G, D] persistent and output bytes of a group, relative to usable bytes.
      is_cpu: f8[D].
    """

    seconds: FloatArray
    traffic: FloatArray
    bytes_share: FloatArray
    is_cpu: FloatArray

    def of_groups(self, placed: npt.NDArray[np.bool_], current: int) -> FeatureArray:
        """f4[G, F]: log seconds, log bytes sent, log bytes held, placed so far, is current."""
        best = self.seconds.min(axis=1)
        columns = [
            np.log1p(best),
            np.log1p(self.traffic.sum(axis=1)),
            np.log1p(10.0 * self.bytes_share.max(axis=1)),
            placed,
            np.arange(len(best)) == current,
        ]
        return np.stack(columns, axis=1).astype(np.float32)

    def of_devices(
        self, placement: IntArray, placed: npt.NDArray[np.bool_], current: int
    ) -> FeatureArray:
        """f4[D, E] for placing one group of a placement i4[G].

        The group's seconds there (logarithm, and over its fastest); seconds of all groups there
        and of those placed in this episode; traffic in from and out to groups there; bytes
        there; whether the group lies there now; whether it is a CPU.
        """
        num_devices = len(self.is_cpu)
        others = np.arange(len(placement)) != current
        on_device = (placement[:, np.newaxis] == np.arange(num_devices)) & others[:, np.newaxis]
        load = np.where(on_device, self.seconds, 0.0)
        total = max(float(self.seconds.min(axis=1).sum()), 1e-12)
        here = self.seconds[current]
        columns = [
            np.log1p(here),
            np.log(np.maximum(here, 1e-9) / max(float(here.min()), 1e-9)),
            load.sum(axis=0) / total,
            load[placed].sum(axis=0) / total,
            np.log1p(self.traffic[:, current] @ on_device),
            np.log1p(self.traffic[current] @ on_device),
            np.where(on_device, self.bytes_share, 0.0).sum(axis=0) + self.bytes_share[current],
            np.arange(num_devices) == placement[current],
            self.is_cpu,
        ]
        return np.stack(columns, axis=1).astype(np.float32)


def episode_features(grouped: GroupedProblem) -> EpisodeFeatures:
    """Prepares a grouped problem."""
    problem, grouping = grouped.problem, grouped.grouping
    mean_seconds = reference_seconds(problem) / grouping.num_groups
    seconds = group_sums(np.where(np.isfinite(problem.op_seconds), problem.op_seconds, 0), grouping)
    fastest = np.where(grouped.allowed, seconds, np.inf).min(axis=1, keepdims=True)
    bandwidth = problem.link_bytes_per_second[~np.eye(problem.num_devices, dtype=bool)]
    per_byte = float(np.mean(1.0 / bandwidth)) if len(bandwidth) else 0.0
    made = np.zeros(problem.num_ops)
    np.add.at(made, problem.graph.tensor_producer, problem.graph.tensor_alloc_bytes)
    held = group_sums(made + problem.graph.op_persistent_bytes, grouping)
    return EpisodeFeatures(
        seconds=np.where(grouped.allowed, seconds, fastest) / mean_seconds,
        traffic=group_traffic(problem.graph, grouping) * per_byte / mean_seconds,
        bytes_share=held[:, np.newaxis] / np.maximum(problem.usable_bytes(), 1.0),
        is_cpu=np.array([kind == "CPU" for kind in problem.device_types], dtype=np.float64),
    )


def graph_relations(grouped: GroupedProblem) -> GraphRelations:
    """Neighbours, ancestors and descendants of each group."""
    adjacency = group_adjacency(grouped.problem.graph, grouped.grouping)
    reach = _reachable(adjacency)
    other = ~(reach | reach.T | np.eye(len(reach), dtype=bool))
    return GraphRelations(
        from_parents=tf.constant(_row_means(adjacency.T)),
        from_children=tf.constant(_row_means(adjacency)),
        pools=tf.constant(np.stack([reach.T, reach, other]), tf.float32),
    )


def _reachable(adjacency: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """bool[G, G]: whether j can be reached from i by one edge or more."""
    reach = adjacency
    while True:
        step = reach.astype(np.float32)
        further = reach | (step @ step > 0.0)
        if (further == reach).all():
            return further
        reach = further


def _row_means(adjacency: npt.NDArray[np.bool_]) -> FeatureArray:
    return (adjacency / np.maximum(adjacency.sum(axis=1, keepdims=True), 1)).astype(np.float32)
