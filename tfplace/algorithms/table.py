"""One table from an algorithm's name to what makes it; nothing else branches on the name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping

from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean
from graphs.op_graph import IntArray
from tfplace.algorithms.learned.training.checkpoint import Checkpoint
from tfplace.search.instance import Instance
from tfplace.search.search import Stage
from tfplace.search.trial import Policy


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
    "single": Algorithm("tfplace.algorithms.placers.single", "Single", "all ops on one device"),
    "random": Algorithm(
        "tfplace.algorithms.placers.random", "Random", "a random device for each group"
    ),
    "topological": Algorithm(
        "tfplace.algorithms.placers.topological",
        "Topological",
        "m-TOPO: cuts of the topological order",
    ),
    "etf": Algorithm(
        "tfplace.algorithms.placers.etf", "EarliestTaskFirst", "m-ETF: earliest task first"
    ),
    "sct": Algorithm(
        "tfplace.algorithms.placers.sct",
        "SmallCommunicationTimes",
        "m-SCT: favourite children from an LP",
    ),
    "heft": Algorithm(
        "tfplace.algorithms.placers.heft", "Heft", "HEFT: upward ranks, earliest finish"
    ),
    "metis": Algorithm("tfplace.algorithms.placers.metis", "Metis", "balanced minimum cuts"),
    "local_search": Algorithm(
        "tfplace.algorithms.placers.local_search",
        "LocalSearch",
        "simulated annealing",
        takes_start=True,
    ),
    "colocrl": Algorithm(
        "tfplace.algorithms.learned.colocrl",
        "ColocRL",
        "colocation groups, seq2seq, REINFORCE (ICML 2017)",
    ),
    "hierarchical": Algorithm(
        "tfplace.algorithms.learned.hierarchical",
        "Hierarchical",
        "HDP: Grouper and Placer (ICLR 2018)",
    ),
    "spotlight": Algorithm(
        "tfplace.algorithms.learned.spotlight",
        "Spotlight",
        "seq2seq policy, PPO (ICML 2018)",
        takes_start=True,
    ),
    "post": Algorithm(
        "tfplace.algorithms.learned.post",
        "Post",
        "softmax per group, PPO and cross-entropy (NeurIPS 2018)",
        takes_start=True,
    ),
    "placeto": Algorithm(
        "tfplace.algorithms.learned.placeto",
        "Placeto",
        "graph embedding, one group at a time (NeurIPS 2019)",
    ),
}
SPECIAL = {
    "auto": "baselines, annealing, then a learned policy from the best",
    "given": "the model's own device strings",
    "expert": "the placement of the papers' experts; benchmark graphs only",
}
# Stages of "auto" and their shares of what is left, where the simulator answers ...
AUTO_SIMULATED = (("annealing", 0.94), ("post", 1.0))

# ... and where real runs do, which a policy can't ask by itself.
AUTO_MEASURED = (("local_search", 0.6), ("spotlight", 1.0))


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


def stages_of(
    name: str,
    instance: Instance,
    seed: int,
    incumbent: IntArray | None,
    trained: Checkpoint | None = None,
    is_simulated: bool = True,
) -> list[Stage]:
    """The stages that a search with this algorithm runs, one after another.

    Args:
      name: an algorithm's.
      instance: the problem.
      seed: of its random choices.
      incumbent: the best baseline i4[N], which "auto" goes on from; the others start afresh.
      trained: what --policy names, or None; then `name` is its algorithm.
      is_simulated: whether the evaluator is the simulator.
    """
    if trained is not None:
        return [Stage(name, lambda best: _trained(trained, instance, seed))]
    if name != "auto":
        return [Stage(name, lambda best: policy_of(name, instance, seed, best))]
    stages = AUTO_SIMULATED if is_simulated else AUTO_MEASURED
    return [_auto_stage(each, share, instance, seed, incumbent) for each, share in stages]


def _trained(checkpoint: Checkpoint, instance: Instance, seed: int) -> Policy:
    from tfplace.algorithms.learned.training.trained_policy import placeto_from

    return placeto_from(checkpoint, instance.problem, seed)


def _auto_stage(
    name: str, share: float, instance: Instance, seed: int, incumbent: IntArray | None
) -> Stage:
    def start(best: IntArray | None) -> Policy:
        known = incumbent if best is None else best
        if name == "annealing":
            return _annealing(instance, seed, known)
        return policy_of(name, instance, seed, known)

    return Stage(name, start, share)


def _annealing(instance: Instance, seed: int, incumbent: IntArray | None) -> Policy:
    """Compiled annealing from all that is known and all that the one-shot placers find."""
    from tfplace.algorithms.annealing.multilevel import Multilevel

    known = [incumbent, instance.given, instance.expert]
    return Multilevel(instance.problem, seed, [start for start in known if start is not None])


def policy_of(name: str, instance: Instance, seed: int, start: IntArray | None) -> Policy:
    """Makes the policy of one algorithm for one problem.

    Args:
      name: not "auto".
      instance: the problem.
      seed: of its random choices.
      start: the best placement so far i4[N], for algorithms that go on from one.
    """
    if name in ("given", "expert"):
        from tfplace.algorithms.placers.fixed import Fixed

        fixed = instance.given if name == "given" else instance.expert
        if fixed is None:
            raise UsageError(
                "placing as an expert does: this model says nothing about it; experts' placements "
                "come with the graphs that `tfplace graph` writes; choose another --algorithm"
            )
        return Fixed(fixed)
    algorithm = ALGORITHMS[name]
    constructor = getattr(importlib.import_module(algorithm.module), algorithm.name)
    if algorithm.takes_start:
        policy: Policy = constructor(instance.problem, seed=seed, start=start)
    else:
        policy = constructor(instance.problem, seed=seed)
    return policy
