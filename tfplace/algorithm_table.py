"""One table from an algorithm's name to what makes it; nothing else branches on the name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

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


def stages_of(name: str, prepared: Prepared, seed: int) -> list[Stage]:
    """The stages that a search with this algorithm runs, one after another."""
    plan = AUTO if name == "auto" else ((name, 1.0),)
    return [_stage(each, share, prepared, seed) for each, share in plan]


def _stage(name: str, share: float, prepared: Prepared, seed: int) -> Stage:
    return Stage(name, lambda best: policy_of(name, prepared, seed, best), share)


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
      UsageError: the model carries no marks of an expert.
    """
    raise NotImplementedError
