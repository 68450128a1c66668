"""Everything that a run of `optimize` found out, put together as its report."""

import dataclasses
from collections.abc import Mapping

from graphs.cluster import Cluster
from graphs.effects import left_out
from graphs.pricing.costs import Costs, Provenance
from graphs.protos import JsonObject
from rewrite.written_signature import of_another_name
from tfplace.choosing.data_parallel import NAME, DataParallel
from tfplace.choosing.memory.within_memory import plan_facts
from tfplace.choosing.outcomes import Decided
from tfplace.choosing.run_results import PLACED
from tfplace.choosing.scheduling.model_order import order_facts
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.preparing.written_devices import LoadingNeeds
from tfplace.proving.proof import Proof
from tfplace.report.explaining.explained import Explained
from tfplace.report.explaining.parallelism import parallelism_facts, parallelism_of
from tfplace.report.explaining.sensitivity import sensitivity
from tfplace.report.report import Measured, Report, advice, plan_text, shards_advice
from tfplace.report.split_facts import any_split_facts, split_facts
from tfplace.report.text_calibration import machine_facts
from tfplace.search.trial_log import SearchResult
from tfplace.simulation.simulated import Best
from tfplace.version import __version__


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """What a run of `optimize` did.

    Attributes:
      decided: what was searched, which placement was written, and why.
      proof: what the written placement is worth.
      data_parallel: the baseline that splits the batch evenly; None where it makes no sense.
      seconds_by_phase: how long it took to come here.
      loading_needs: what a process needs before it can run what was written.
    """

    decided: Decided
    proof: Proof
    data_parallel: DataParallel | None
    seconds_by_phase: Mapping[str, float] = dataclasses.field(default_factory=dict)
    loading_needs: LoadingNeeds = ""


def report_of(options: OptimizeOptions, run: FinishedRun, explained: Explained) -> Report:
    """The report of one run."""
    decided, proof = run.decided, run.proof
    prepared, searched, choice = decided.prepared, decided.searched, decided.choice
    best = Best.of(explained.placed)
    bound, estimate = proof.lower_bound_seconds, run.data_parallel
    baselines = searched.reported_baselines(prepared.problem)
    if estimate is not None:
        baselines[NAME] = estimate
    placed = explained.placed
    kind = parallelism_facts(parallelism_of(placed.problem, placed.device_of_op), placed.problem)
    placed_ops = choice.candidate.device_of_op
    plan = plan_facts(prepared, placed_ops, explained.before)
    sentences = [choice.sentence, kind["sentence"]]
    if plan is not None:
        sentences.append(plan_text(plan, best.peak_bytes))
    measured = None
    if decided.timings is not None:
        measured = Measured(**vars(decided.timings), devices_used=proof.devices_used)
    return Report(
        tfplace_version=__version__,
        seed=options.seed,
        algorithm=options.algorithm,
        evaluator=options.evaluator,
        model=_model_facts(prepared),
        cluster=_cluster_facts(prepared.cluster, decided.has_forgotten),
        costs=cost_facts(prepared.costs),
        baselines=baselines,
        best=best,
        lower_bound_seconds=bound,
        search={
            **search_facts(searched.result),
            "beside": [dataclasses.asdict(each) for each in searched.beside],
            "interrupted": proof.interrupted,
        },
        measured=measured,
        verified=proof.verified,
        verdict=choice.verdict if plan is None else PLACED,
        verdict_sentence=", ".join(filter(None, sentences)),
        command=options.command,
        output_dir=str(options.output_dir),
        loading_needs=run.loading_needs,
        waiting=explained.waiting(),
        rounds=decided.rounds,
        seconds_by_phase=run.seconds_by_phase,
        split=split_facts(prepared.split),
        any_split=any_split_facts(
            proof.any_split,
            best.step_seconds,
            prepared.steps_read.left_whole if prepared.steps_read else 0,
        ),
        order=order_facts(prepared, placed_ops),
        memory_plan=plan,
        sensitivity=sensitivity(decided, placed),
        parallelism=kind,
        shards_tried=searched.shards,
        by_devices=searched.by_devices(prepared.problem, choice.candidate),
        advice={
            "sentences": [
                *advice(estimate, best.step_seconds),
                *shards_advice(kind, searched.shards),
            ]
        },
    )


def cost_facts(costs: Costs) -> JsonObject:
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


def _model_facts(prepared: PreparedModel) -> JsonObject:
    source = prepared.source
    return {
        "path": source.path,
        "kind": source.kind,
        "mode": source.mode,
        "step_origin": source.step_origin,
        "num_ops": prepared.problem.num_ops,
        "num_groups": prepared.problem.num_groups,
        "trainable_bytes": source.trainable_bytes,
        "guessed": [*source.guessed, *of_another_name(source)],
        "matched": list(prepared.matched),
        "units": [f"{name}: {why}" for name, why in prepared.costs.units(prepared.flat).items()],
        "opened": [f"{name}: {what}" for name, what in prepared.flat.opened.items()],
        "left_out_of_runs": left_out(source),
    }


def _cluster_facts(cluster: Cluster, has_forgotten: bool) -> JsonObject:
    devices = [
        {"name": d.name, "type": d.type, "memory_bytes": d.memory_bytes} for d in cluster.devices
    ]
    return {
        "name": cluster.name,
        "communication": cluster.communication,
        "devices": devices,
        **machine_facts(cluster, has_forgotten),
    }


def search_facts(result: SearchResult) -> JsonObject:
    """A search's figures (the contract, section 4)."""
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
