"""Training: episode after episode on some instance of a family, with one set of weights."""

import dataclasses
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from graphs import zoo
from graphs.errors import UsageError
from graphs.host.scratch import scratch_directory
from graphs.problem import Measurement, Outcome, Problem
from graphs.protos import Json
from tfplace.algorithms.learned.config import AdamConfig, PlacetoConfig
from tfplace.algorithms.learned.placeto import Placeto
from tfplace.algorithms.learned.policies.placement_features import DEVICE_WIDTH, GROUP_WIDTH
from tfplace.algorithms.learned.training.checkpoint import Checkpoint, Recipe, Sizes
from tfplace.algorithms.learned.training.families import split_family
from tfplace.algorithms.placers.one_shot import OneShot, Random, single_devices
from tfplace.interruption import Interruption, interruptible
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.search.kept.snapshot import Snapshot
from tfplace.search.search import Limits, Stage, search
from tfplace.simulation.evaluator import SimulatingEvaluator


@dataclasses.dataclass(frozen=True)
class Score:
    """Step times relative to the best single device's; inf where nothing fits."""

    final: float  # of the placement at the end of an episode
    best: float  # of the fastest placement on the way to it


class HeldOut:
    """One held-out problem: what one device, random placements and policies reach on it."""

    def __init__(self, problem: Problem, config: PlacetoConfig, seed: int) -> None:
        """Prepares the problem; the best single device is the measure."""
        self._problem = problem
        self._seed = seed
        self._evaluator = SimulatingEvaluator(problem)
        self._placeto = Placeto(problem, seed, config)
        self._begin = self._placeto.state()
        stage = Stage("single", lambda best: OneShot(lambda: single_devices(problem)))
        best = search([stage], self._evaluator, Limits(math.inf)).best
        seconds = math.inf if best is None else _seconds(best.outcome)
        self._single = seconds if seconds < math.inf else 1.0  # ratios stay finite

    @property
    def num_trials(self) -> int:
        """Placements of an episode: the start, and one per group."""
        return self._placeto.grouped.grouping.num_groups + 1

    def policy(self, weights: Mapping[str, np.ndarray]) -> Score:
        """One episode of a policy that learns nothing on the way."""
        self._placeto.set_state(self._begin)
        self._placeto.set_weights(weights)
        seconds = []
        for trial in range(self.num_trials):
            proposal = self._placeto.propose()
            if proposal is None:
                break
            (outcome,) = self._evaluator.evaluate(proposal.device_of_op)
            seconds.append(_seconds(outcome))
            # Placeto updates its weights when it is told the last outcome of an episode.
            if trial < self.num_trials - 1:
                self._placeto.learn(proposal, [outcome])
        return Score(seconds[-1] / self._single, min(seconds) / self._single)

    def random(self) -> float:
        """The best of as many random placements of the same groups, relative to one device."""
        num_groups = self.num_trials - 1
        policy = Random(self._problem, self._seed, num_groups, batch_size=self.num_trials)
        outcomes = self._evaluator.evaluate(policy.propose().device_of_op)
        return min(map(_seconds, outcomes)) / self._single


def judged(
    held_out: Sequence[HeldOut], weights: Mapping[str, np.ndarray]
) -> dict[str, float | None]:
    """Geometric means over held-out problems, JSON-ready: {"final", "best"}; null for infinite."""
    scores = [instance.policy(weights) for instance in held_out]
    return {
        "final": geometric_mean([score.final for score in scores]),
        "best": geometric_mean([score.best for score in scores]),
    }


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean; None where a value is not finite: some placement did not run."""
    if not all(0.0 < value < math.inf for value in values):
        return None
    return statistics.geometric_mean(values)


def _seconds(outcome: Outcome) -> float:
    return outcome.step_seconds if isinstance(outcome, Measurement) else math.inf


# An instance is one graph on one cluster. To prepare one (graph, TensorFlow functions) takes as
# long as some 20 episodes, so training begins with a few and takes in one more every few episodes.
FIRST_INSTANCES = 4
EPISODES_PER_INSTANCE = 10

# Every episode starts as the first one on an unseen graph does. Instances differ, so the rate is
# lower and the entropy bonus higher than for one problem: with Placeto's own, a policy trained for
# 60 episodes on three RNNLMs put all on one device (one run). With these and 8 graphs, 465 episodes
# ended at 0.767 of one device's step time on the held-out ones; a rate of 3e-3, entropy weight 0.01
# and γ = 0.9 at 0.796 (one run of each, decay over 400 episodes).
CONFIG = dataclasses.replace(
    PlacetoConfig(),
    start_from_best=False,
    optimizer=AdamConfig(learning_rate=1e-2, gradient_clip=1.25),
    last_learning_rate=1e-3,
    entropy_weight=0.03,
)


@dataclasses.dataclass(frozen=True)
class TrainingLimits:
    """When training ends.

    Attributes:
      episodes: trained in all, earlier runs included; None for no limit.
      budget_seconds: wall time of this run's episodes, the training graphs' preparation
        included, judging excluded.
    """

    episodes: int | None
    budget_seconds: float


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """What a training left.

    Attributes:
      checkpoint: the policy after the last episode.
      interrupted: whether Ctrl-C or SIGTERM ended the training.
    """

    checkpoint: Checkpoint
    interrupted: bool


class Trainer:
    """Carries weights, optimizer and random numbers from instance to instance."""

    def __init__(
        self, recipe: Recipe, start: Checkpoint | None, config: PlacetoConfig = CONFIG
    ) -> None:
        """Starts anew, or where `start` ended.

        Raises:
          UsageError: `start` was made by another recipe, or there is no such family.
        """
        self._split = split_family(recipe.family, recipe.num_graphs, recipe.seed)
        self._instances = FamilyInstances(self._split.train, recipe.clusters)
        self._recipe, self._config = recipe, config
        self._learners: dict[int, tuple[Placeto, SimulatingEvaluator]] = {}
        self._sizes = Sizes(
            GROUP_WIDTH, DEVICE_WIDTH, config.units, config.rounds, config.grouping.max_groups
        )
        self._shared: Snapshot = {}
        self._returns: Snapshot = {}
        self.episodes, self.seconds = 0, 0.0
        if start is not None:
            self._go_on(start)

    def episode(self) -> float:
        """One episode and its update; returns its last step time over the instance's reference."""
        # The choice depends on the episode alone, so that a resumed training makes the same.
        rng = np.random.default_rng([self._recipe.seed, self.episodes])
        index = int(rng.integers(num_open(self.episodes, len(self._instances.names))))
        learner, evaluator = self._learner(index)
        own = learner.state()
        returns = self._returns.get(f"returns/{index}", own["returns"])
        learner.set_state({**own, "returns": returns, **self._shared})
        scalars: Mapping[str, float] = {"relative_seconds": 1.0}
        for _ in range(learner.grouped.grouping.num_groups + 1):
            proposal = learner.propose()
            if proposal is None:
                break
            scalars = learner.learn(proposal, evaluator.evaluate(proposal.device_of_op))
        state = learner.state()
        self._returns[f"returns/{index}"] = state["returns"]
        self._shared = _shared_part(state)
        self.episodes += 1
        return float(scalars["relative_seconds"])

    def weights(self) -> Snapshot:
        """The policy's weights between two episodes."""
        if not self._shared:
            self._shared = _shared_part(self._learner(0)[0].state())
        return {key: value for key, value in self._shared.items() if key.startswith("policy/")}

    def checkpoint(self, held_out: dict[str, Json]) -> Checkpoint:
        """All that a later training needs to go on from here."""
        self.weights()
        arrays = {**self._shared, **self._returns}
        return Checkpoint(self._recipe, self._sizes, self.episodes, self.seconds, held_out, arrays)

    def held_out(self) -> list[HeldOut]:
        """The held-out graphs on all clusters; prepares them."""
        instances = FamilyInstances(self._split.test, self._recipe.clusters)
        return [
            HeldOut(instances.problem(index), self._config, self._recipe.seed)
            for index in range(len(instances.names))
        ]

    def _learner(self, index: int) -> tuple[Placeto, SimulatingEvaluator]:
        """What learns on one training instance, made when it is first needed."""
        if index not in self._learners:
            problem = self._instances.problem(index)
            learner = Placeto(problem, self._recipe.seed, self._config)
            self._learners[index] = (learner, SimulatingEvaluator(problem))
        return self._learners[index]

    def _go_on(self, start: Checkpoint) -> None:
        if start.recipe != self._recipe or start.sizes != self._sizes:
            other = dict(vars(start.recipe).items() - vars(self._recipe).items())
            words = [
                f"--{flag}={','.join(value) if isinstance(value, tuple) else value}"
                for flag, value in other.items()
            ]
            raise UsageError(
                "going on with a training: the checkpoint was trained with "
                f"{' '.join(words) or 'another tfplace'}; give the same flags, another --output, "
                "or --overwrite"
            )
        self.episodes, self.seconds = start.episodes, start.seconds
        for name, array in start.arrays.items():
            part = self._returns if name.startswith("returns/") else self._shared
            part[name] = array


def num_open(episodes: int, num_instances: int) -> int:
    """How many of the instances are trained on after so many episodes; their order is random.

    With all of them from the start, a short training would do little else than prepare them.
    """
    return min(num_instances, FIRST_INSTANCES + episodes // EPISODES_PER_INSTANCE)


def train(
    recipe: Recipe,
    limits: TrainingLimits,
    start: Checkpoint | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
    config: PlacetoConfig = CONFIG,
    keep: Callable[[Checkpoint], None] = lambda checkpoint: None,
) -> TrainingResult:
    """Trains, and judges the policy on held-out graphs before and after.

    Args:
      limits: when to stop; Ctrl-C stops it too, after the episode that runs, and what was trained
        is kept, unjudged: held_out["after"] is None.
      config: of Placeto; its sizes are kept in the checkpoint.
      keep: given what `start` may be, after every episode.

    Raises:
      TfplaceError: no such family or cluster, or `start` belongs to another recipe.
      DivergedError: the weights are no numbers any more.
      KeyboardInterrupt: Ctrl-C before the first episode.
    """
    with interruptible() as interruption:
        trainer = Trainer(recipe, start, config)
        tell(f"preparing held-out graphs of {recipe.family}, which are never trained on")
        held_out = trainer.held_out()
        random = geometric_mean([instance.random() for instance in held_out])
        before = judged(held_out, trainer.weights())
        with interruption.held():
            for _ in _episodes(trainer, limits, tell, interruption):
                keep(trainer.checkpoint({}))
        facts = {
            "num_tasks": len(held_out),
            "num_trials": [instance.num_trials for instance in held_out],
            "random": random,
            "before": before,
            "after": interruption.unless_seen(lambda: judged(held_out, trainer.weights()), None),
        }
        return TrainingResult(trainer.checkpoint(facts), interruption.seen)


def _episodes(
    trainer: Trainer,
    limits: TrainingLimits,
    tell: Callable[[str], None],
    interruption: Interruption,
) -> Iterator[None]:
    """Trains one episode for each item that is asked for, until a limit is reached."""
    began, earlier, told = time.monotonic(), trainer.seconds, 0.0
    recent: list[float] = []
    while limits.episodes is None or trainer.episodes < limits.episodes:
        seconds = time.monotonic() - began
        if seconds >= limits.budget_seconds or interruption.seen:
            break
        recent = [*recent[-49:], trainer.episode()]
        trainer.seconds = earlier + time.monotonic() - began
        yield
        if seconds - told >= 10.0:
            told = seconds
            mean = float(np.mean(recent))
            tell(
                f"{seconds:5.0f} s, episode {trainer.episodes:,}: the last {len(recent)} ended at "
                f"{mean:.3f} of the reference time"
            )


def _shared_part(state: Snapshot) -> Snapshot:
    """What goes from instance to instance; the rest belongs to one problem."""
    return {
        name: value
        for name, value in state.items()
        if name.startswith(("policy/", "optimizer/")) or name in ("rng", "num_episodes")
    }


class FamilyInstances:
    """Every graph of a family on every cluster.

    Attributes:
      names: (graph, cluster) of each instance.
    """

    def __init__(self, graphs: Sequence[str], clusters: Sequence[str]) -> None:
        """Notes what there is; builds nothing yet."""
        self.names = list(itertools.product(graphs, clusters))
        self._problem = functools.cache(_prepared)

    def problem(self, index: int) -> Problem:
        """The problem of one instance; about two seconds when it is asked for the first time.

        Raises:
          ClusterError: no such cluster.
          ConstraintError: an op of the graph can't run on it.
        """
        return self._problem(*self.names[index])


def _prepared(spec: str, cluster: str) -> Problem:
    name, options = zoo.parse(spec)
    size = str(options.pop("size", "published"))
    with scratch_directory() as scratch:
        path = str(Path(scratch, f"{name}.pb"))
        zoo.write(zoo.build(name, size, **options), path)
        return prepare(ProblemOptions(path, cluster=cluster), trace=False).problem
