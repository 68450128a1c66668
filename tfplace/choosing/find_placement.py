"""The search of `optimize` and `solve`: the baselines, then the algorithm from the best of them."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence

from graphs.op_graph import IntArray
from graphs.problem import Problem
from tfplace.algorithms.learned.training.checkpoint import Checkpoint
from tfplace.algorithms.placers.legal import legal
from tfplace.algorithms.table import stages_of
from tfplace.budget import PARTS
from tfplace.choosing import device_counts
from tfplace.choosing.baselines import (
    GIVEN,
    LEAST_SECONDS,
    Baseline,
    Candidate,
    as_reported,
    baseline_candidates,
    best_of,
)
from tfplace.choosing.budget import has_finalists
from tfplace.choosing.data_parallel import EvenSplit, data_parallel_candidate
from tfplace.choosing.memory_limit import too_many
from tfplace.choosing.ties import without_idle
from tfplace.choosing.unsplit_baselines import TriedShards, Unsplit
from tfplace.measurement.measuring_evaluator import MeasuringEvaluator
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress
from tfplace.search.instance import Instance
from tfplace.search.kept.folder import SearchFolder
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial import Evaluator
from tfplace.search.trial_log import SearchResult
from tfplace.simulation.evaluator import SimulatingEvaluator


@dataclasses.dataclass(frozen=True)
class ProblemAlone:
    """A problem of any graph, without a model."""

    problem: Problem  # what is placed
    given: IntArray  # i4[N] the placement that came with it, which may be one that can't run

    @functools.cached_property
    def instance(self) -> Instance:
        """What an algorithm needs of it; what can't run is made legal."""
        return Instance(self.problem, legal(self.problem, self.given))


@dataclasses.dataclass(frozen=True)
class Beside:
    """A search beside the one whose result is reported: of another number of shards, or in order.

    Attributes:
      name: what was searched.
      num_trials: evaluated placements.
      seconds: wall time.
    """

    name: str
    num_trials: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Searched:
    """What was found.

    Attributes:
      baselines: all of them, tried or not.
      candidates: the baselines and the algorithm's best, each predicted by the simulator.
      fewer: the best found on fewer devices, and the best of all without idle devices.
      result: of the algorithm's search.
      shards: what was tried of --shards=auto; empty where the number was given.
      data_parallel: the baseline, where trying numbers of shards has come by it.
      unsplit: the step as it came, where another number of shards is best; what is written is
        compared with it then.
      beside: the searches before and after the one of `result`.
    """

    baselines: Sequence[Candidate]
    candidates: Sequence[Candidate]
    result: SearchResult
    fewer: Sequence[Candidate] = ()
    shards: Sequence[TriedShards] = ()
    data_parallel: EvenSplit | None = None
    unsplit: Unsplit | None = None
    beside: Sequence[Beside] = ()

    @property
    def everything(self) -> list[Candidate]:
        """All placements that are known."""
        return [*self.candidates, *self.fewer]

    @property
    def best(self) -> Candidate | None:
        """The fastest of all that can run."""
        return best_of(self.everything)

    def reported_baselines(self, problem: Problem) -> dict[str, Baseline]:
        """As report.json has them: those of the unsplit step, wherever they are known."""
        if self.unsplit is not None:
            return dict(self.unsplit.reported())
        return {each.name: as_reported(each, problem) for each in self.baselines}

    def by_devices(self, problem: Problem, chosen: Candidate) -> list[device_counts.OnDevices]:
        """The best step found on 1, 2, 4, ... devices, split or not."""
        rows = device_counts.by_devices(problem, [*self.everything, chosen])
        return rows if self.unsplit is None else self.unsplit.better(rows)


def find_placement(
    prepared: PreparedModel | ProblemAlone,
    options: OptimizeOptions,
    trained: Checkpoint | None,
    folder: SearchFolder | None,
    progress: Progress,
    earlier: Searched | None = None,
    known: Sequence[Candidate] = (),
    stages: Callable[[Sequence[Candidate]], Sequence[Stage]] | None = None,
) -> Searched:
    """Tries the baselines, then searches on from the best of them, all within one budget.

    Args:
      trained: what --policy names, or None.
      earlier: what a shorter search of the same problem has found, which this one goes on from.
      known: placements to begin with besides.
      stages: of the search, by the baselines; those of the algorithm, from the best that is known,
        where it is None.
    """
    problem = prepared.problem
    if earlier is None:
        where = f"{problem.num_devices} devices"
        if not isinstance(prepared, ProblemAlone):
            where = prepared.cluster.name
        progress.say(f"trying the baselines on {where}")
    simulator = SimulatingEvaluator(problem)
    simulator.evaluate(prepared.instance.given[None])  # compiles, or loads what was compiled before
    began = time.monotonic()
    if earlier is None:
        baselines = _baselines(prepared, options, simulator)
        known = [*baselines, *known]
    else:
        baselines = list(earlier.baselines)
        known = [*earlier.candidates, *known]
    left = max(options.budget_seconds - (time.monotonic() - began), LEAST_SECONDS)
    num_trials = 0
    if folder is None and (stages is None or earlier is None):
        first, num_trials = _found_first(prepared, options, known, left)
        known = [*known, *first]
    if stages is None:
        run = _stages(prepared.instance, options, trained, folder, known)
    else:
        run = stages(baselines)
    left = max(options.budget_seconds - (time.monotonic() - began), LEAST_SECONDS)
    if not isinstance(prepared, ProblemAlone) and has_finalists(prepared, options):
        # The rounds of real runs search on.
        left = PARTS["first_search"].of(left)
    trials = None if options.max_trials is None else max(options.max_trials - num_trials, 1)
    reserve = device_counts.NONE
    if options.evaluator != "measure":
        reserve = device_counts.reserved(problem, left, trials)
    limits = device_counts.limits_beside(reserve, Limits(left, trials), problem)
    with evaluator_for(options.evaluator, prepared) as evaluator, progress.working(left):
        result = search(run, evaluator, limits, progress.search, folder)
        candidates = list(known)
        if result.best is not None:
            placement = result.best.placement.device_of_op
            outcome = simulator.evaluate(placement[None])[0]
            candidates.append(Candidate(f"found by {options.algorithm}", placement, outcome))
        if result.interrupted:
            return Searched(baselines, candidates, result)
        fewer = device_counts.on_fewer_devices(problem, candidates, reserve, options.seed)
    return Searched(baselines, candidates, result, fewer)


def without_idle_devices(problem: Problem, searched: Searched) -> Searched:
    """The same with the best of all without devices that do next to nothing.

    Apart from `find_placement`, since it may take as long as a short search: once for what is
    written, and not for each number of shards.
    """
    if (best := searched.best) is None or searched.result.interrupted:
        return searched
    spared = without_idle(problem, SimulatingEvaluator(problem), best)
    return dataclasses.replace(searched, fewer=[*searched.fewer, spared])


def _stages(
    instance: Instance,
    options: OptimizeOptions,
    trained: Checkpoint | None,
    folder: SearchFolder | None,
    known: Sequence[Candidate],
) -> Sequence[Stage]:
    """Of the algorithm's search, from the best that is known or was kept; none on one device."""
    if instance.problem.num_devices == 1:
        return []
    best = best_of(known)
    start = None if best is None else best.device_of_op
    if folder is not None:
        start = folder.start(start)
    return stages_of(
        options.algorithm,
        instance,
        options.seed,
        start,
        trained,
        is_simulated=options.evaluator != "measure",
    )


def _found_first(
    prepared: PreparedModel | ProblemAlone,
    options: OptimizeOptions,
    known: Sequence[Candidate],
    seconds: float,
) -> tuple[list[Candidate], int]:
    """What is found on fewer devices, once, and the trials of it: more are never worse.

    For a model only by `auto`.
    """
    is_wanted = options.algorithm == "auto" or isinstance(prepared, ProblemAlone)
    is_done = any(each.name.startswith(device_counts.FOUND_FIRST) for each in known)
    if not is_wanted or options.evaluator == "measure" or is_done:
        return [], 0
    limits = Limits(seconds, options.max_trials)
    return device_counts.found_on_fewer(prepared.instance, known, limits, options.seed)


def _baselines(
    prepared: PreparedModel | ProblemAlone, options: OptimizeOptions, simulator: SimulatingEvaluator
) -> list[Candidate]:
    """What needs no search, and data parallelism where the step is split for it."""
    baselines = baseline_candidates(
        prepared.instance, simulator, options.budget_seconds, options.seed, options.max_trials
    )
    if isinstance(prepared, ProblemAlone):
        baselines[0] = Candidate(GIVEN, prepared.given, simulator.evaluate(prepared.given[None])[0])
        return baselines
    if (limit := too_many(prepared, prepared.given)) is not None:
        baselines[0] = dataclasses.replace(baselines[0], outcome=limit)
    evenly = data_parallel_candidate(prepared, options.seed)
    if evenly is not None:
        limit = too_many(prepared, evenly.device_of_op)
        baselines.append(dataclasses.replace(evenly, outcome=limit or evenly.outcome))
    return baselines


@contextlib.contextmanager
def evaluator_for(kind: str, prepared: PreparedModel | ProblemAlone) -> Iterator[Evaluator]:
    """The evaluator that --evaluator names; "auto" searches in the simulator."""
    if kind != "measure" or isinstance(prepared, ProblemAlone):
        yield SimulatingEvaluator(prepared.problem)
        return
    run, op_of_node = prepared.opened_run(), prepared.built.op_of_node
    with MeasuringEvaluator(prepared.flat, op_of_node, run, prepared.cluster) as evaluator:
        yield evaluator
