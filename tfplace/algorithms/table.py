"""One table from an algorithm's name to what makes it; nothing else branches on the name."""

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean
from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.learned.training.checkpoint import Checkpoint
from tfplace.algorithms.placers.one_shot import OneShot, Start
from tfplace.grouping.copies import is_split
from tfplace.search.instance import Instance
from tfplace.search.search import Stage
from tfplace.search.trial import Policy

# m-SCT's linear programs take 0.7 s for 22,000 ops; annealing larger graphs needs the time more.
MAX_SCT_OPS = 30_000

# Makes a policy for (instance, seed, start): `start` is the best placement so far i4[N], or None.
# It imports what it needs when it is called, since some modules take seconds.
Maker = Callable[[Instance, int, IntArray | None], Policy]


def _known(attribute: str) -> Maker:
    """A placement that came with the model: an attribute of Instance."""

    def policy(instance: Instance, seed: int, start: IntArray | None) -> Policy:
        known: IntArray | None = getattr(instance, attribute)
        if known is None:
            raise UsageError(
                "placing as an expert does: this model says nothing about it; experts' placements "
                "come with the graphs that `tfplace graph` writes; choose another --algorithm"
            )
        return OneShot(lambda: known[None])

    return policy


def _one_shot(name: str) -> Maker:
    """What is in ONE_SHOTS under that name, whatever the start."""
    return lambda instance, seed, start: OneShot(lambda: one_shot(name, instance, seed))


def _learner(module: str, name: str, takes_start: bool = False) -> Maker:
    """A class (problem, seed=) of policies that learn; some take start= to go on from."""

    def policy(instance: Instance, seed: int, start: IntArray | None) -> Policy:
        options = {"start": start} if takes_start else {}
        return _imported(module, name)(instance.problem, seed=seed, **options)

    return policy


def _annealer(module: str, name: str, takes_known: bool = False) -> Maker:
    """A class (problem, seed, starts): from the start, and what one-shot algorithms find.

    Some also begin with the placements that came with the model.
    """

    def policy(instance: Instance, seed: int, start: IntArray | None) -> Policy:
        known = [start, instance.given, instance.expert] if takes_known else [start]
        placements = [each for each in known if each is not None]
        starts = [*split_starts(instance, seed), *one_shot_starts(instance, seed)]
        if placements:
            starts.insert(0, lambda: np.array(placements, dtype=np.int32))
        return _imported(module, name)(instance.problem, seed, starts)

    return policy


# Functions (problem, seed) -> placements i4[B, N]. Annealing begins with what they find, in this
# order.
ONE_SHOTS: Mapping[str, tuple[str, str]] = {
    "single": ("placers.one_shot", "single_devices"),  # all ops on one device
    "topological": ("placers.cuts", "m_topo"),  # cuts of the topological order
    "etf": ("placers.earliest_start", "m_etf"),  # earliest task first
    "metis": ("placers.cuts", "minimum_cuts"),  # balanced minimum cuts
    "heft": ("placers.heft", "heft"),  # upward ranks, earliest finish
    "sct": ("placers.earliest_start", "m_sct"),  # favourite children from a linear program
}

# What of them a split step's search begins with: they are baselines, and known by then.
SPLIT_ONE_SHOTS = ("single", "topological", "etf")
MAX_ONE_SHOT_OPS = 50_000
"""Of a split step that is larger, annealing begins with data parallelism and pipelines alone: on 72
devices m-TOPO's repairs take a minute."""

# The same for split steps alone; no --algorithm is called so.
SPLIT_SHOTS: Mapping[str, tuple[str, str]] = {
    "data_parallel": ("placers.data_parallel", "data_parallel_starts"),
    "pipeline": ("placers.data_parallel", "pipelines"),
}

ALGORITHMS: Mapping[str, Maker] = {
    "given": _known("given"),  # the model's own device strings
    "expert": _known("expert"),  # as the papers' experts place their benchmark graphs
    "single": _one_shot("single"),
    "random": _learner("placers.one_shot", "Random"),  # a random device for each group
    "topological": _one_shot("topological"),
    "etf": _one_shot("etf"),
    "sct": _one_shot("sct"),
    "heft": _one_shot("heft"),
    "metis": _one_shot("metis"),
    # Simulated annealing that asks the evaluator about every placement.
    "local_search": _annealer("annealing.local_search", "LocalSearch"),
    # Colocation groups, seq2seq, REINFORCE (ICML 2017).
    "colocrl": _learner("learned.group_placer", "ColocRL"),
    # HDP: Grouper and Placer (ICLR 2018).
    "hierarchical": _learner("learned.hierarchical", "Hierarchical"),
    # Seq2seq policy, PPO (ICML 2018).
    "spotlight": _learner("learned.group_placer", "Spotlight", takes_start=True),
    # Softmax per group, PPO and cross-entropy (NeurIPS 2018).
    "post": _learner("learned.post", "Post", takes_start=True),
    # Graph embedding, one group at a time (NeurIPS 2019).
    "placeto": _learner("learned.placeto", "Placeto"),
}

# Stages that --algorithm does not name: simulated annealing inside the simulator.
STAGES: Mapping[str, Maker] = {
    "annealing": _annealer("annealing.policy", "Multilevel", takes_known=True)
}


@dataclasses.dataclass(frozen=True)
class Staged:
    """Algorithms one after another, each with the share that it gets of what is then left.

    Attributes:
      simulated: where the simulator answers.
      measured: where real runs do, which a policy can't ask by itself.
    """

    simulated: Sequence[tuple[str, float]]
    measured: Sequence[tuple[str, float]]


STAGED: Mapping[str, Staged] = {
    # From the best baseline. No learned policy follows annealing: see decision 035.
    "auto": Staged(
        simulated=(("annealing", 1.0),), measured=(("local_search", 0.6), ("spotlight", 1.0))
    )
}


def names() -> tuple[str, ...]:
    """All that --algorithm takes."""
    return (*STAGED, *ALGORITHMS)


def require_known(name: str, flag: str = "--algorithm") -> None:
    """Raises UsageError for a name that is no algorithm's."""
    if name not in names():
        raise UsageError(
            f"reading {flag}={name}: there is no such algorithm{did_you_mean(name, names())} "
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
      incumbent: the best baseline i4[N], which "auto" goes on from; the others start afresh.
      trained: what --policy names, or None; then `name` is its algorithm.
      is_simulated: whether the evaluator is the simulator.
    """
    if trained is not None:
        return [Stage(name, lambda best: _trained(trained, instance, seed))]
    staged = STAGED.get(name)
    if staged is None:
        return [Stage(name, lambda best: policy_of(name, instance, seed, best))]

    def stage(part: str, share: float) -> Stage:
        def start(best: IntArray | None) -> Policy:
            return policy_of(part, instance, seed, incumbent if best is None else best)

        return Stage(part, start, share)

    return [stage(*each) for each in (staged.simulated if is_simulated else staged.measured)]


def policy_of(name: str, instance: Instance, seed: int, start: IntArray | None) -> Policy:
    """Makes the policy of one algorithm for one problem.

    Args:
      name: not "auto", which has several.
      start: the best placement so far i4[N], for algorithms that go on from one.
    """
    return {**ALGORITHMS, **STAGES}[name](instance, seed, start)


def annealing_from(problem: Problem, seed: int, placements: IntArray) -> Policy:
    """Annealing inside the simulator that begins with given placements i4[B, N] alone."""
    return _imported("annealing.policy", "Multilevel")(problem, seed, [lambda: placements])


def one_shot(name: str, instance: Instance, seed: int) -> IntArray:
    """i4[B, N]: placements of a one-shot algorithm, computed once for an instance and a seed."""
    if (name, seed) not in instance.one_shots:
        place = _imported(*{**ONE_SHOTS, **SPLIT_SHOTS}[name])
        instance.one_shots[name, seed] = place(instance.problem, seed)
    return instance.one_shots[name, seed]


def one_shot_starts(instance: Instance, seed: int) -> list[Start]:
    """What makes the placements that annealing begins with, when their turn comes."""
    names = [*ONE_SHOTS]
    if is_split(instance.problem) and instance.problem.num_ops > MAX_ONE_SHOT_OPS:
        return []
    if is_split(instance.problem):  # the others take seconds, and data parallelism is far ahead
        names = [name for name in names if name in SPLIT_ONE_SHOTS]
    elif instance.problem.num_ops > MAX_SCT_OPS:
        names.remove("sct")
    return [functools.partial(one_shot, name, instance, seed) for name in names]


def split_starts(instance: Instance, seed: int) -> list[Start]:
    """What makes data parallel placements and a pipeline of a split step; nothing for others."""
    if not is_split(instance.problem):
        return []
    return [functools.partial(one_shot, name, instance, seed) for name in SPLIT_SHOTS]


def _trained(checkpoint: Checkpoint, instance: Instance, seed: int) -> Policy:
    from tfplace.algorithms.learned.training.checkpoint import placeto_from

    return placeto_from(checkpoint, instance.problem, seed)


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"tfplace.algorithms.{module}"), name)
