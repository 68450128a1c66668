"""Finds out what ran where and for how long, by TensorFlow's own step traces.

A trace tells the truth about devices: soft placement and Grappler may have changed what the
graph asks for. Grappler also folds and fuses ops, which then are never seen.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.by_key import by_key
from graphs.cluster import Cluster
from graphs.graph_view import GraphView
from graphs.loading.initialization import of_saved_model, with_saved_variables
from graphs.loading.saved_model_file import choose_meta_graph
from graphs.loading.sniff import sniff
from graphs.problem import Infeasible
from graphs.protos import GraphDef
from tfplace.measurement import training_run
from tfplace.measurement.measuring_process import MeasuringProcess, RunFailedError
from tfplace.measurement.step_stats import StepTrace


@dataclasses.dataclass(frozen=True)
class DeviceUse:
    """What ran on a device."""

    num_ops: int  # different ops
    seconds: float  # their time in one step


def trace_run(
    graph_def: GraphDef,
    run: training_run.TrainingRun,
    cluster: Cluster,
    limits: training_run.StepLimits,
    soft_placement: bool = False,
) -> list[StepTrace] | Infeasible:
    """Traces steps of a graph in a child process.

    Args:
      cluster: where the devices are; workers without addresses are started and ended here.
      limits: min_steps are traced; the budget does not matter.
      soft_placement: see RuntimeConfig.

    Returns:
      [min_steps] traces, or why the run can't be made.
    """
    graph = graph_def.SerializeToString()
    prepare = training_run.PrepareRequest(0, graph, run, through="session", seed=limits.seed)
    with MeasuringProcess(cluster, soft_placement, limits.all_seconds) as process:
        try:
            process.ask(prepare, limits)
            process.ask(training_run.StepRequest(0, limits.warmup_steps), limits)
            traces: list[StepTrace] = process.ask(
                training_run.TraceRequest(0, limits.min_steps), limits
            )
        except RunFailedError as failure:
            return failure.why
    return traces


def trace_saved_model(
    directory: str,
    tags: Sequence[str],
    ends: tuple[Mapping[str, np.ndarray], Sequence[str]],
    cluster: Cluster,
    limits: training_run.StepLimits,
) -> list[StepTrace] | Infeasible:
    """Traces steps of the main graph of a SavedModel, from the values that it was saved with.

    Args:
      directory: its directory.
      tags: of the MetaGraphDef to load.
      ends: {tensor: array} that is fed, and what is fetched, of its main graph.
      cluster, limits: as for `trace_run`.
    """
    meta_graph = choose_meta_graph(sniff(directory).proto, tuple(tags), directory)
    view = GraphView(meta_graph.graph_def)
    start = with_saved_variables(of_saved_model(view, meta_graph, directory), view, meta_graph)
    run = training_run.TrainingRun(*ends, start)
    return trace_run(meta_graph.graph_def, run, cluster, limits, soft_placement=True)


def devices_used(traces: Sequence[StepTrace]) -> dict[str, DeviceUse]:
    """{device: use}: where the ops of one run's traces ran; what moves tensors is no op."""
    steps = [trace.seconds_of_ops() for trace in traces]
    ops = by_key((device, op) for step in steps for op, device in step)
    by_device = [by_key((d, took) for (_, d), took in step.items()) for step in steps]
    seconds = by_key((d, sum(took)) for step in by_device for d, took in step.items())
    return {d: DeviceUse(len({*ops[d]}), float(np.median(seconds[d]))) for d in sorted(ops)}
