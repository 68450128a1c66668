"""Everything that a run of `optimize` found out, put together as its report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.cluster import Cluster
from graphs.pricing.costs import Costs, Provenance
from rewrite.verify import Verified
from tfplace.bounds.exact import Optimum
from tfplace.choosing.baselines import Candidate, as_reported
from tfplace.choosing.choose import Choice
from tfplace.choosing.compare import Comparison
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.report.advice import advice_of
from tfplace.report.explaining.explained import Explained
from tfplace.report.inspection import trainable_bytes
from tfplace.report.report import Measured, Report
from tfplace.search.search import SearchResult
from tfplace.simulation.prediction import best_of_prediction, predict
from tfplace.version import __version__


@dataclasses.dataclass(frozen=True)
class Searched:
    """What was found.

    Attributes:
      baselines: all of them, tried or not.
      result: of the search.
      choice: what is written.
      timings: real runs; None where there were none.
      optimum: of a small graph; None where it was not searched.
    """

    baselines: Sequence[Candidate]
    result: SearchResult
    choice: Choice
    timings: Comparison | None
    optimum: Optimum | None = None


@dataclasses.dataclass(frozen=True)
class Proof:
    """What it is worth.

    Attributes:
      verified: given and emitted model compared.
      lower_bound_seconds: of every placement; None where it was not computed.
      devices_used: {device: {"ops": n, "seconds": t}} of a traced run of the emitted model.
      interrupted: whether something was left out for a Ctrl-C or SIGTERM.
    """

    verified: Verified
    lower_bound_seconds: float | None
    devices_used: Mapping[str, Mapping[str, float]]
    interrupted: bool


def report_of(
    prepared: PreparedModel,
    options: OptimizeOptions,
    searched: Searched,
    proof: Proof,
    explained: Explained,
) -> Report:
    """The report of one run."""
    choice = searched.choice
    prediction = predict(prepared.problem, choice.candidate.device_of_op)
    measured = None
    if searched.timings is not None:
        measured = Measured(**vars(searched.timings), devices_used=proof.devices_used)
    return Report(
        tfplace_version=__version__,
        seed=options.seed,
        algorithm=options.algorithm,
        evaluator=options.evaluator,
        model=_model_facts(prepared),
        cluster=_cluster_facts(prepared.cluster),
        costs=cost_facts(prepared.costs),
        baselines={c.name: as_reported(c, prepared.problem) for c in searched.baselines},
        best=best_of_prediction(prediction),
        lower_bound_seconds=proof.lower_bound_seconds,
        search={**_search_facts(searched.result), "interrupted": proof.interrupted},
        measured=measured,
        verified=proof.verified,
        verdict=choice.verdict,
        verdict_sentence=choice.sentence,
        command=options.command,
        output_dir=str(options.output_dir),
        waiting=explained.waiting(),
        advice=advice_of(
            prepared, choice.verdict, prediction.step_seconds, proof.lower_bound_seconds
        ).to_json(),
    )


def cost_facts(costs: Costs) -> Mapping[str, Any]:
    """How many ops were traced, scaled or priced, and what of the measured step that explains."""
    ops = costs.num_ops_by_provenance()
    return {
        "source": costs.source,
        "covered_ops": float(costs.covered.mean()),
        "traced_ops": ops[Provenance.TRACED],
        "fused_ops": ops[Provenance.ABSENT],
        "scaled_ops": ops[Provenance.SCALED],
        "analytic_ops": ops[Provenance.ANALYTIC],
        "wall_time_coverage": costs.wall_time_coverage,
        "notes": list(costs.notes),
    }


def _model_facts(prepared: PreparedModel) -> Mapping[str, Any]:
    source = prepared.source
    return {
        "path": source.path,
        "kind": source.kind,
        "mode": source.mode,
        "step_origin": source.step_origin,
        "num_ops": prepared.problem.num_ops,
        "num_groups": prepared.num_groups,
        "trainable_bytes": trainable_bytes(source),
        "guessed": list(source.guessed),
        "units": [f"{name}: {why}" for name, why in prepared.costs.units(prepared.flat).items()],
        "opened": [f"{name}: {what}" for name, what in prepared.flat.opened.items()],
    }


def _cluster_facts(cluster: Cluster) -> Mapping[str, Any]:
    devices = [
        {"name": d.name, "type": d.type, "memory_bytes": d.memory_bytes} for d in cluster.devices
    ]
    return {"name": cluster.name, "communication": cluster.communication, "devices": devices}


def _search_facts(result: SearchResult) -> Mapping[str, Any]:
    return {
        "num_trials": result.num_trials,
        "num_infeasible": result.num_infeasible,
        "seconds": result.seconds,
        "trials_per_second": result.num_trials / result.seconds if result.seconds else 0.0,
        "best_trial": None if result.best is None else result.best.index,
        "best_stage": result.best_stage,
        "history": result.history,
        "stages": [
            {"name": name, "num_trials": trials, "seconds": seconds}
            for name, trials, seconds in result.stages
        ],
        "notes": list(result.notes),
    }
