"""One table from an algorithm's name to what makes it; nothing else branches on the name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from graphs.errors import UsageError
from graphs.nearest import did_you_mean
from graphs.op_graph import IntArray
from tfplace.search import Stage
from tfplace.trial import Policy

if TYPE_CHECKING:
    from tfplace.prepare import Prepared


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """Attributes: module and name of a class (problem, seed, ...) -> Policy; a line about it.

    `takes_start`: its constructor takes the best placement so far, i4[N] or None, as `start`.
    """

    module: str
    name: str
    summary: str
    takes_start: bool = False


ALGORITHMS: Mapping[str, Algorithm] = {
    "single": Algorithm("tfplace.placers.single", "Single", "all ops on one device"),
    "random": Algorithm("tfplace.placers.random", "Random", "a random device for each group"),
    "topological": Algorithm(
        "tfplace.placers.topological", "Topological", "m-TOPO: cuts of the topological order"
    ),
    "etf": Algorithm("tfplace.placers.etf", "EarliestTaskFirst", "m-ETF: earliest task first"),
    "local_search": Algorithm(
        "tfplace.placers.local_search", "LocalSearch", "simulated annealing", takes_start=True
    ),
    "spotlight": Algorithm(
        "tfplace.algorithms.spotlight", "Spotlight", "seq2seq policy, PPO (ICML 2018)"
    ),
}
SPECIAL = {
    "auto": "baselines, annealing, then a learned policy from the best",
    "given": "the model's own device strings",
    "expert": "the placement of the papers' experts; benchmark graphs only",
}
AUTO = (("local_search", 0.6), ("spotlight", 1.0))


def names() -> tuple[str, ...]:
    """All that --algorithm takes."""
    return (*SPECIAL, *ALGORITHMS)


def require_known(name: str) -> None:
    """Raises UsageError for a name that is no algorithm's."""
    if name not in names():
        raise UsageError(
            f"reading --algorithm={name}: there is no such algorithm{did_you_mean(name, names())} "
            f"(algorithms: {', '.join(names())})"
        )


def stages_of(name: str, prepared: Prepared, seed: int, incumbent: IntArray | None) -> list[Stage]:
    """The stages that a search with this algorithm runs, one after another.

    Args:
      name: an algorithm's.
      prepared: the problem.
      seed: of its random choices.
      incumbent: the best baseline i4[N], which "auto" goes on from; the others start afresh.
    """
    if name != "auto":
        return [Stage(name, lambda best: policy_of(name, prepared, seed, best))]
    return [_auto_stage(each, share, prepared, seed, incumbent) for each, share in AUTO]


def _auto_stage(
    name: str, share: float, prepared: Prepared, seed: int, incumbent: IntArray | None
) -> Stage:
    def start(best: IntArray | None) -> Policy:
        return policy_of(name, prepared, seed, incumbent if best is None else best)

    return Stage(name, start, share)


def policy_of(name: str, prepared: Prepared, seed: int, start: IntArray | None) -> Policy:
    """Makes the policy of one algorithm for one problem.

    Args:
      name: not "auto".
      prepared: the problem.
      seed: of its random choices.
      start: the best placement so far i4[N], for algorithms that go on from one.
    """
    if name in ("given", "expert"):
        from tfplace.placers.fixed import Fixed

        return Fixed(prepared.given if name == "given" else expert_placement(prepared))
    algorithm = ALGORITHMS[name]
    constructor = getattr(importlib.import_module(algorithm.module), algorithm.name)
    if algorithm.takes_start:
        policy: Policy = constructor(prepared.problem, seed=seed, start=start)
    else:
        policy = constructor(prepared.problem, seed=seed)
    return policy


def expert_placement(prepared: Prepared) -> IntArray:
    """i4[N]: where the papers' experts put it.

    Raises:
      UsageError: the model carries no marks of an expert, or the cluster has no GPU.
    """
    from graphs.zoo import expert_placement as expert_gpus

    problem = prepared.problem
    gpus = [d for d, kind in enumerate(problem.device_types) if kind == "GPU"]
    gpus = gpus or list(range(problem.num_devices))
    gpu_of_op = expert_gpus(prepared.flat.graph_def, problem.graph.op_names, len(gpus))
    if gpu_of_op is None:
        raise UsageError(
            "placing as an expert does: this model says nothing about it; experts' placements "
            "come with the graphs that `tfplace graph` writes; choose another --algorithm"
        )
    allowed = problem.allowed()
    chosen = [gpu_of_op.get(name) for name in problem.graph.op_names]
    wanted = [-1 if gpu is None else gpus[gpu] for gpu in chosen]
    return completed(np.array(wanted, dtype=np.int32), allowed, problem.graph.colocation_group)


def completed(wanted: IntArray, allowed: np.ndarray, colocation_group: IntArray) -> IntArray:
    """i4[N]: a partial placement made whole.

    Ops of a colocation group follow the first that has a device; who has none, or no kernel
    there, goes to the first device that it may lie on (the CPU comes first in a cluster).

    Args:
      wanted: i4[N], -1 where nothing is said.
      allowed: bool[N, D].
      colocation_group: i4[N].
    """
    result = np.array(wanted)
    said = np.flatnonzero((wanted >= 0) & (colocation_group >= 0))
    of_group = np.full(int(colocation_group.max(initial=-1)) + 1, -1, dtype=np.int32)
    of_group[colocation_group[said[::-1]]] = wanted[said[::-1]]
    member = colocation_group >= 0
    result[member] = of_group[colocation_group[member]]
    possible = (result >= 0) & allowed[np.arange(len(result)), np.maximum(result, 0)]
    return np.where(possible, result, np.argmax(allowed, axis=1)).astype(np.int32)
