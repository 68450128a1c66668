"""Predicted against measured step times of one model on devices that are present."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from graphs.errors import ClusterError
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Infeasible
from tfplace.choosing.real_runs.held_runs import num_fitting
from tfplace.choosing.scheduling.model_order import simulated_in_order
from tfplace.fidelity.error_sources import OpTypeError, TracedStep, errors_by_op_type, traced_step
from tfplace.fidelity.placements import PlacementToJudge, placements_to_judge
from tfplace.measurement.run_measurement import Timings, measure_variants
from tfplace.measurement.timing import summarize
from tfplace.measurement.training_run import StepLimits, exactly
from tfplace.preparing.prepare import PreparedModel
from tfplace.report.text_calibration import ASSUMED, figures_of
from tfplace.simulation.evaluator import SimulatingEvaluator
from tfplace.simulation.simulated import Simulated, simulated

NUM_HALVES = 50


@dataclasses.dataclass(frozen=True)
class RankAgreement:
    """Ranks and sizes of step times, predicted against measured.

    Attributes:
      spearman: rank correlation, -1 to 1; None below two placements, or where all are equal.
      median_abs_relative_error: median of |predicted / measured - 1|.
      p90_abs_relative_error: 90th percentile of the same.
      reliability: of the measured ranks, 0 to 1: what Spearman's correlation with a repetition of
        the same runs would be, and so about the most that a prediction can reach; None where
        nobody knows.
    """

    spearman: float | None
    median_abs_relative_error: float
    p90_abs_relative_error: float
    reliability: float | None = None


def agreement(
    predicted: npt.ArrayLike, measured: npt.ArrayLike, runs: Sequence[FloatArray] = ()
) -> RankAgreement:
    """Compares step times f8[P] > 0.

    Args:
      predicted: of each placement.
      measured: of each placement.
      runs: f8[runs] of each placement, run by run, for the ranks' reliability.

    Raises:
      ValueError: there are none.
    """
    first, second = np.asarray(predicted, np.float64), np.asarray(measured, np.float64)
    if not first.size:
        raise ValueError("comparing predictions with measurements: found none, wanted at least one")
    median, p90 = np.percentile(np.abs(relative_errors(first, second)), [50, 90])
    return RankAgreement(spearman(first, second), float(median), float(p90), reliability(runs))


def reliability(runs: Sequence[FloatArray]) -> float | None:
    """How far the ranks of medians of f8[R] runs each would be the same in other runs.

    Runs of all placements are cut into two halves; r is the rank correlation of the halves'
    medians, and 2 r / (1 + r) what it would be for twice as many runs, which is how many there
    are (Spearman 1910, Brown 1910). The mean of NUM_HALVES random cuts; 0 where halves disagree;
    None below two runs or two placements.
    """
    count = min((len(each) for each in runs), default=0)
    if count < 2 or len(runs) < 2:
        return None
    every = np.array([each[:count] for each in runs])
    rng = np.random.default_rng(0)
    found = []
    for _ in range(NUM_HALVES):
        order = rng.permutation(count)
        halves = [np.median(every[:, half], axis=1) for half in np.array_split(order, 2)]
        r = spearman(*halves)
        if r is not None:
            found.append(2.0 * max(r, 0.0) / (1.0 + max(r, 0.0)))
    return float(np.mean(found)) if found else None


def relative_errors(predicted: FloatArray, measured: FloatArray) -> FloatArray:
    """f8[P]: predicted / measured - 1."""
    return predicted / measured - 1.0


def spearman(first: FloatArray, second: FloatArray) -> float | None:
    """Pearson's correlation of the ranks; ties have their mean rank. None where it has no value.

    Not scipy.stats.spearmanr, which warns of equal values and of fewer than two.
    """
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (first, second)]
    scale = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float((ranks[0] * ranks[1]).sum()) / scale if scale > 0 else None


@dataclasses.dataclass(frozen=True)
class FidelityConfig:
    """How to judge.

    Attributes:
      num_placements: >= 1.
      num_rounds: timed steps of each placement, >= 1; the median counts.
      num_traced: placements to trace afterwards: the worst predicted ones; 0 for none.
      seed: of placements and values.
    """

    num_placements: int = 30
    num_rounds: int = 7
    num_traced: int = 3
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Pair:
    """What was predicted of one placement, and what was measured."""

    kind: str  # of the placement, see PlacementToJudge
    name: str  # of the placement
    predicted_seconds: float  # the simulator's step time + dispatch_seconds
    dispatch_seconds: float  # what the client adds to the step, of a calibrated cluster; else 0
    measured_seconds: float  # median of the measured step times
    p10: float  # their 10th percentile, in seconds
    p90: float  # their 90th percentile, in seconds
    runs: int  # how many there are
    transfers: int  # how many tensors a step moves, as predicted
    transfer_bytes: int  # how many bytes these are

    @property
    def relative_error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted_seconds / self.measured_seconds - 1.0


@dataclasses.dataclass(frozen=True)
class Speedups:
    """How much faster a placement is than the best single device."""

    placement: str  # its name
    predicted: float  # ratio of predicted step times
    measured: float  # ratio of measured step times


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """How well predictions of one model on one cluster agree with real runs.

    Attributes:
      model: its path.
      cluster: its name.
      communication: the cluster's channel rule.
      is_calibrated: whether the cluster says what transfers take of the devices.
      figures: which of the machine's were measured; see `report.machine_facts`.
      corrected: {number: value and interval} of the machine, which a first round of other
        placements has shown; empty where none was needed.
      agreement: over all pairs.
      pairs: of the placements that ran.
      failed: {placement: why it could not run}.
      speedup: of the placement with the best prediction; None where no single device ran.
      kept_speedup: of the optimised placement that ran fastest, which is what `optimize` keeps:
        it measures several; None where none ran.
      traced: the worst predicted placements, taken apart.
      by_op_type: over these, largest error first.
      background_share: of the machine's CPU time that others used meanwhile; None if unknown.
    """

    model: str
    cluster: str
    communication: str
    is_calibrated: bool
    agreement: RankAgreement
    pairs: Sequence[Pair]
    failed: Mapping[str, str]
    speedup: Speedups | None
    kept_speedup: Speedups | None
    traced: Sequence[TracedStep]
    by_op_type: Sequence[OpTypeError]
    background_share: float | None
    corrected: Mapping[str, tuple[float, float, float]] = dataclasses.field(default_factory=dict)
    figures: str = ASSUMED


def study_fidelity(
    prepared: PreparedModel,
    config: FidelityConfig,
    tell: Callable[[str], None] = lambda sentence: None,
    measure: Callable[[Sequence[IntArray]], Sequence[Timings | Infeasible]] | None = None,
) -> Fidelity:
    """Predicts, measures and compares placements.

    Costs and calibration come from runs of their own, never from what is judged here.

    Args:
      prepared: the problem on a cluster that is present.
      measure: times placements, i4[N] each; by default real runs, side by side.

    Raises:
      ClusterError: no placement ran.
    """
    tell(f"choosing {config.num_placements} placements")
    judged = placements_to_judge(prepared.instance, config.num_placements, config.seed)
    limits = rounds(config.num_rounds, config.seed)
    measure = measure or (lambda chosen: measured_steps(prepared, chosen, limits, tell))
    results = measure([placement.device_of_op for placement in judged])
    evaluator = SimulatingEvaluator(prepared.problem, num_threads=1)
    ran: list[tuple[Simulated, Pair]] = []
    failed: dict[str, str] = {}
    for placement, result in zip(judged, results, strict=True):
        if isinstance(result, Infeasible):
            failed[placement.name] = result.message
        else:
            placed = simulated(prepared.problem, placement.device_of_op, evaluator)
            in_order = simulated_in_order(prepared, placement.device_of_op, placed)
            ran.append((placed, _pair(prepared, placement, in_order, result)))
    if not ran:
        raise ClusterError(
            f"measuring on {prepared.cluster.name}: none of {len(judged)} placements ran; the "
            f"first: {next(iter(failed.values()), 'nothing to place')}"
        )
    pairs = [pair for _, pair in ran]
    predicted = np.array([pair.predicted_seconds for pair in pairs])
    measured = np.array([pair.measured_seconds for pair in pairs])
    runs = [result.step_seconds for result in results if isinstance(result, Timings)]
    worst = np.argsort(-np.abs(relative_errors(predicted, measured)))[: config.num_traced]
    traced = _traced(prepared, [ran[i] for i in worst.tolist()], tell)
    loads = [each.background_share for each in results if isinstance(each, Timings)]
    return Fidelity(
        model=prepared.source.path,
        cluster=prepared.cluster.name,
        communication=prepared.cluster.communication,
        is_calibrated=prepared.problem.executor is not None,
        figures=figures_of(prepared.cluster),
        agreement=agreement(predicted, measured, runs),
        pairs=pairs,
        failed=failed,
        speedup=best_speedup(pairs),
        kept_speedup=kept_speedup(pairs),
        traced=[step for _, step in traced],
        by_op_type=errors_by_op_type(prepared.problem, traced),
        background_share=max((load for load in loads if load is not None), default=None),
    )


def best_speedup(pairs: Sequence[Pair]) -> Speedups | None:
    """Of the placement with the best prediction; None where no single device ran."""
    return _over_single(pairs, min(pairs, key=lambda pair: pair.predicted_seconds))


def kept_speedup(pairs: Sequence[Pair]) -> Speedups | None:
    """Of the optimised placement that ran fastest; None where none or no single device ran."""
    optimised = [pair for pair in pairs if pair.kind == "optimised"]
    if not optimised:
        return None
    return _over_single(pairs, min(optimised, key=lambda pair: pair.measured_seconds))


def _over_single(pairs: Sequence[Pair], best: Pair) -> Speedups | None:
    single = next((pair for pair in pairs if pair.kind == "single"), None)
    if single is None:
        return None
    return Speedups(
        best.name,
        single.predicted_seconds / best.predicted_seconds,
        single.measured_seconds / best.measured_seconds,
    )


def _pair(
    prepared: PreparedModel, judged: PlacementToJudge, placed: Simulated, result: Timings
) -> Pair:
    timing = summarize(result.step_seconds)
    num_fetched = sum(":" in fetch for fetch in prepared.flat.fetches)
    dispatch = prepared.cluster.dispatch_seconds(judged.device_of_op, num_fetched)
    return Pair(
        kind=judged.kind,
        name=judged.name,
        predicted_seconds=placed.outcome.step_seconds + dispatch,
        dispatch_seconds=dispatch,
        measured_seconds=timing.median_seconds,
        p10=timing.p10,
        p90=timing.p90,
        runs=timing.runs,
        transfers=placed.num_transfers,
        transfer_bytes=placed.transfer_bytes,
    )


def _traced(
    prepared: PreparedModel, chosen: Sequence[tuple[Simulated, Pair]], tell: Callable[[str], None]
) -> list[tuple[IntArray, TracedStep]]:
    """The placements that could be traced, with their steps taken apart."""
    steps = []
    for placed, pair in chosen:
        tell(f"tracing {pair.name}")
        seconds = pair.predicted_seconds, pair.measured_seconds
        step = traced_step(prepared, pair.name, placed, seconds)
        if isinstance(step, TracedStep):
            steps.append((placed.device_of_op, step))
    return steps


def measured_steps(
    prepared: PreparedModel,
    placements: Sequence[IntArray],
    limits: StepLimits,
    tell: Callable[[str], None],
) -> list[Timings | Infeasible]:
    """[P] step times over interleaved rounds.

    All placements of a batch are prepared at once and stepped in turn, so that a change of the
    machine's speed meets all of them. Batches hold as many as fit: their variables all stay.

    Args:
      prepared: the problem; its devices are present.
      placements: i4[N] each.
    """
    results: list[Timings | Infeasible] = []
    size = num_fitting(prepared.problem)
    for start in range(0, len(placements), size):
        batch = placements[start : start + size]
        tell(f"timing placements {start + 1} to {start + len(batch)} of {len(placements)}")
        variants = {str(i): prepared.placed_run_graph(p) for i, p in enumerate(batch)}
        timed = measure_variants(variants, prepared.training_run(), prepared.cluster, limits)
        results += [timed[name] for name in variants]
    return results


def rounds(num_rounds: int, seed: int) -> StepLimits:
    """Exactly so many rounds after one of warming up."""
    return exactly(num_rounds, warmup_steps=1, seed=seed)
