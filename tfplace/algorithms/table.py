"""One table from an algorithm's name to what makes it; nothing else branches on the name."""

from __future__ import annotations

import abc
import dataclasses
import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean
from graphs.op_graph import IntArray
from tfplace.algorithms.learned.training.checkpoint import Checkpoint
from tfplace.algorithms.placers.one_shot import OneShot, Start
from tfplace.search.instance import Instance
from tfplace.search.search import Stage
from tfplace.search.trial import Policy

# m-SCT's linear programs take 0.7 s for 22,000 ops; annealing larger graphs needs the time more.
MAX_SCT_OPS = 30_000

# One-shot algorithms whose placements annealing begins with, in the order in which it tries them.
STARTS = ("single", "topological", "etf", "metis", "heft", "sct")


class Algorithm(abc.ABC):
    """What --algorithm names. Its module is imported when it is first made: some take seconds."""

    @abc.abstractmethod
    def policy(self, instance: Instance, seed: int, start: IntArray | None) -> Policy:
        """Makes the policy; see `policy_of`."""


@dataclasses.dataclass(frozen=True)
class Known(Algorithm):
    """A placement that came with the model.

    Attributes:
      attribute: of Instance.
    """

    attribute: str

    def policy(self, instance: Instance, seed: int, start: IntArray | None) -> Policy:
        """Proposes it; UsageError if there is none."""
        known: IntArray | None = getattr(instance, self.attribute)
        if known is None:
            raise UsageError(
                "placing as an expert does: this model says nothing about it; experts' placements "
                "come with the graphs that `tfplace graph` writes; choose another --algorithm"
            )
        return OneShot(lambda: known[None])


@dataclasses.dataclass(frozen=True)
class OneShotAlgorithm(Algorithm):
    """A function (problem, seed) -> placements i4[B, N].

    Attributes:
      module: the function's, in tfplace.algorithms.
      function: its name.
    """

    module: str
    function: str

    def policy(self, instance: Instance, seed: int, start: IntArray | None) -> Policy:
        """Proposes the placements, whatever the start."""
        return OneShot(functools.partial(self.placements, instance, seed))

    def placements(self, instance: Instance, seed: int) -> IntArray:
        """i4[B, N], computed once for an instance and a seed."""
        key = (self.function, seed)
        if key not in instance.one_shots:
            place = _imported(self.module, self.function)
            instance.one_shots[key] = place(instance.problem, seed)
        return instance.one_shots[key]


@dataclasses.dataclass(frozen=True)
class Learner(Algorithm):
    """A class (problem, seed=) of policies that learn from what their placements are worth.

    Attributes:
      module: the class's, in tfplace.algorithms.
      name: the class's.
      takes_start: whether it also takes the placement to go on from, i4[N] or None, as start=.
    """

    module: str
    name: str
    takes_start: bool = False

    def policy(self, instance: Instance, seed: int, start: IntArray | None) -> Policy:
        """Goes on from the start if it can, else begins afresh."""
        options = {"start": start} if self.takes_start else {}
        learner = _imported(self.module, self.name)
        policy: Policy = learner(instance.problem, seed=seed, **options)
        return policy


@dataclasses.dataclass(frozen=True)
class Annealer(Algorithm):
    """A class (problem, seed, starts) of policies that begin with several placements.

    Attributes:
      module: the class's, in tfplace.algorithms.
      name: the class's.
      takes_known: whether it also begins with the placements that came with the model.
    """

    module: str
    name: str
    takes_known: bool = False

    def policy(self, instance: Instance, seed: int, start: IntArray | None) -> Policy:
        """Begins with the start and what is known, then with what one-shot algorithms find."""
        known = [start, instance.given, instance.expert] if self.takes_known else [start]
        starts = one_shot_starts(instance, seed)
        placements = [each for each in known if each is not None]
        if placements:
            starts.insert(0, lambda: np.array(placements, dtype=np.int32))
        annealer = _imported(self.module, self.name)
        policy: Policy = annealer(instance.problem, seed, starts)
        return policy


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
    # From the best baseline: annealing, then a learned policy.
    "auto": Staged(
        simulated=(("annealing", 0.94), ("post", 1.0)),
        measured=(("local_search", 0.6), ("spotlight", 1.0)),
    ),
}

ALGORITHMS: Mapping[str, Algorithm] = {
    # The model's own device strings.
    "given": Known("given"),
    # The placement of the papers' experts; benchmark graphs only.
    "expert": Known("expert"),
    # All ops on one device.
    "single": OneShotAlgorithm("placers.single", "single_devices"),
    # A random device for each group.
    "random": Learner("placers.random", "Random"),
    # m-TOPO: cuts of the topological order.
    "topological": OneShotAlgorithm("placers.topological", "m_topo"),
    # m-ETF: earliest task first.
    "etf": OneShotAlgorithm("placers.etf", "m_etf"),
    # m-SCT: favourite children from a linear program.
    "sct": OneShotAlgorithm("placers.sct", "m_sct"),
    # HEFT: upward ranks, earliest finish.
    "heft": OneShotAlgorithm("placers.heft", "heft"),
    # Balanced minimum cuts.
    "metis": OneShotAlgorithm("placers.metis", "minimum_cuts"),
    # Simulated annealing that asks the evaluator about every placement.
    "local_search": Annealer("annealing.local_search", "LocalSearch"),
    # Colocation groups, seq2seq, REINFORCE (ICML 2017).
    "colocrl": Learner("learned.colocrl", "ColocRL"),
    # HDP: Grouper and Placer (ICLR 2018).
    "hierarchical": Learner("learned.hierarchical", "Hierarchical"),
    # Seq2seq policy, PPO (ICML 2018).
    "spotlight": Learner("learned.spotlight", "Spotlight", takes_start=True),
    # Softmax per group, PPO and cross-entropy (NeurIPS 2018).
    "post": Learner("learned.post", "Post", takes_start=True),
    # Graph embedding, one group at a time (NeurIPS 2019).
    "placeto": Learner("learned.placeto", "Placeto"),
}

# Stages that --algorithm does not name.
STAGES: Mapping[str, Algorithm] = {
    # Simulated annealing inside the simulator.
    "annealing": Annealer("annealing.policy", "Multilevel", takes_known=True),
}


def names() -> tuple[str, ...]:
    """All that --algorithm takes."""
    return (*STAGED, *ALGORITHMS)


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
      instance: the problem.
      seed: of its random choices.
      start: the best placement so far i4[N], for algorithms that go on from one.
    """
    return {**ALGORITHMS, **STAGES}[name].policy(instance, seed, start)


def one_shot_starts(instance: Instance, seed: int) -> list[Start]:
    """What makes the placements that annealing begins with, when their turn comes."""
    starts: list[Start] = []
    for name in STARTS:
        algorithm = ALGORITHMS[name]
        assert isinstance(algorithm, OneShotAlgorithm)
        if name != "sct" or instance.problem.num_ops <= MAX_SCT_OPS:
            starts.append(functools.partial(algorithm.placements, instance, seed))
    return starts


def _trained(checkpoint: Checkpoint, instance: Instance, seed: int) -> Policy:
    from tfplace.algorithms.learned.training.trained_policy import placeto_from

    return placeto_from(checkpoint, instance.problem, seed)


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"tfplace.algorithms.{module}"), name)
