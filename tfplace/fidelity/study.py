"""Predicted against measured step times of one model on devices that are present."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from graphs.errors import ClusterError
from graphs.op_graph import IntArray
from graphs.placement import Infeasible
from tfplace.fidelity.error_sources import (
    OpTypeError,
    TracedStep,
    errors_by_op_type,
    traced_step,
)
from tfplace.fidelity.measuring import measured_steps, rounds
from tfplace.fidelity.placements import Judged, placements_to_judge
from tfplace.fidelity.rank_agreement import RankAgreement, agreement, relative_errors
from tfplace.measurement.run_measurement import Timings
from tfplace.measurement.timing import summarize
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.simulator import Simulator


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
    """One placement.

    Attributes:
      kind, name: see Judged.
      predicted_seconds: makespan + dispatch_seconds.
      dispatch_seconds: what the client adds to the step, of a calibrated cluster; else 0.
      measured_seconds: median; p10, p90, runs: of the same.
      transfers, transfer_bytes: predicted, of one step.
    """

    kind: str
    name: str
    predicted_seconds: float
    dispatch_seconds: float
    measured_seconds: float
    p10: float
    p90: float
    runs: int
    transfers: int
    transfer_bytes: int


@dataclasses.dataclass(frozen=True)
class Speedups:
    """Over the best single device. Attributes: placement: its name; predicted; measured."""

    placement: str
    predicted: float
    measured: float


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """What was found.

    Attributes:
      model, cluster, communication: of what; the channel rule.
      is_calibrated: whether the cluster says what transfers take of the devices.
      agreement: over all pairs.
      pairs: placements that ran.
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
    failed: dict[str, str]
    speedup: Speedups | None
    kept_speedup: Speedups | None
    traced: Sequence[TracedStep]
    by_op_type: Sequence[OpTypeError]
    background_share: float | None


def fidelity(
    prepared: PreparedModel,
    config: FidelityConfig,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Fidelity:
    """Predicts, measures and compares placements.

    Costs and calibration come from runs of their own, never from what is judged here.

    Args:
      prepared: the problem on a cluster that is present.
      config: how many placements and steps.
      tell: takes a sentence about what is being done.

    Raises:
      ClusterError: the devices are not here, or no placement ran.
    """
    require_present(prepared)
    tell(f"choosing {config.num_placements} placements")
    judged = placements_to_judge(prepared.instance, config.num_placements, config.seed)
    config_of_steps = rounds(config.num_rounds, config.seed)
    results = measured_steps(prepared, [j.device_of_op for j in judged], config_of_steps, tell)
    ran = [
        (j, _pair(prepared, j, result))
        for j, result in zip(judged, results, strict=True)
        if isinstance(result, Timings)
    ]
    failed = {
        j.name: result.message
        for j, result in zip(judged, results, strict=True)
        if isinstance(result, Infeasible)
    }
    if not ran:
        raise ClusterError(
            f"measuring on {prepared.cluster.name}: none of {len(judged)} placements ran; the "
            f"first: {next(iter(failed.values()), 'nothing to place')}"
        )
    pairs = [pair for _, pair in ran]
    predicted = np.array([pair.predicted_seconds for pair in pairs])
    measured = np.array([pair.measured_seconds for pair in pairs])
    worst = np.argsort(-np.abs(relative_errors(predicted, measured)))[: config.num_traced]
    traced = _traced(prepared, [ran[i] for i in worst.tolist()], tell)
    return Fidelity(
        model=prepared.source.path,
        cluster=prepared.cluster.name,
        communication=prepared.cluster.communication,
        is_calibrated=prepared.problem.executor is not None,
        agreement=agreement(predicted, measured),
        pairs=pairs,
        failed=failed,
        speedup=_speedup(pairs),
        kept_speedup=_kept_speedup(pairs),
        traced=[step for _, step in traced],
        by_op_type=errors_by_op_type(prepared, [p for p, _ in traced], [s for _, s in traced]),
        background_share=_background_share(results),
    )


def require_present(prepared: PreparedModel) -> None:
    """Raises ClusterError where the cluster can only be simulated."""
    if not prepared.is_present:
        raise ClusterError(
            f"comparing predictions with real runs on {prepared.cluster.name}: its devices are not "
            "present on this machine; name a --cluster that is here, such as workers:2"
        )


def _pair(prepared: PreparedModel, judged: Judged, result: Timings) -> Pair:
    schedule = Simulator(prepared.problem, num_threads=1).schedule(judged.device_of_op)
    timing = summarize(result.step_seconds)
    num_fetched = sum(":" in fetch for fetch in prepared.flat.fetches)
    dispatch = prepared.cluster.dispatch_seconds(judged.device_of_op, num_fetched)
    return Pair(
        kind=judged.kind,
        name=judged.name,
        predicted_seconds=schedule.makespan + dispatch,
        dispatch_seconds=dispatch,
        measured_seconds=timing.median_seconds,
        p10=timing.p10,
        p90=timing.p90,
        runs=timing.runs,
        transfers=len(schedule.transfers.tensor),
        transfer_bytes=int(schedule.transfers.bytes.sum()),
    )


def _traced(
    prepared: PreparedModel, chosen: Sequence[tuple[Judged, Pair]], tell: Callable[[str], None]
) -> list[tuple[IntArray, TracedStep]]:
    """Those that could be traced."""
    steps = []
    for judged, pair in chosen:
        tell(f"tracing {judged.name}")
        seconds = pair.predicted_seconds, pair.measured_seconds
        step = traced_step(prepared, judged.name, judged.device_of_op, seconds)
        if isinstance(step, TracedStep):
            steps.append((judged.device_of_op, step))
    return steps


def _speedup(pairs: Sequence[Pair]) -> Speedups | None:
    """Of the best prediction."""
    return _over_single(pairs, min(pairs, key=lambda pair: pair.predicted_seconds))


def _kept_speedup(pairs: Sequence[Pair]) -> Speedups | None:
    """Of the optimised placement that ran fastest."""
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


def _background_share(results: Sequence[Timings | Infeasible]) -> float | None:
    """The largest of all batches."""
    shares = [
        result.background_share
        for result in results
        if isinstance(result, Timings) and result.background_share is not None
    ]
    return max(shares, default=None)
