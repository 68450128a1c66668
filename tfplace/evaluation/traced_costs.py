"""Op seconds out of real runs, on devices that are present."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.building.build import BuiltGraph
from graphs.cluster import Cluster, Device
from graphs.flat_graph import FlatGraph
from graphs.op_graph import FloatArray
from graphs.placement import Infeasible
from graphs.pricing.costs import Costs
from graphs.source_model import SourceModel
from tfplace.evaluation.trace import StepTrace, TraceConfig, median_op_seconds, trace_run
from tfplace.evaluation.training_run import TrainingRun

_log = logging.getLogger("tfplace")
DEFAULT_TRACE = TraceConfig()


def with_traced_seconds(
    costs: Costs,
    flat: FlatGraph,
    built: BuiltGraph,
    source: SourceModel,
    feeds: Mapping[str, Any],
    cluster: Cluster,
    config: TraceConfig = DEFAULT_TRACE,
) -> Costs:
    """Replaces analytic seconds by traced ones, device kind by device kind.

    The whole run is traced on one device of each kind. An op that no trace shows was folded or
    fused into another by Grappler, which then carries its time: it costs nothing. What a step
    takes beyond its ops (the executor between them) is spread over the ops that ran.

    Args:
      costs: analytic costs, kept for kinds of devices that can't hold the run.
      flat, built, source, feeds: the run.
      cluster: its devices are present.
      config: how to trace.

    Returns:
      Costs with source "measured", or "mixed" where a kind could not be traced.
    """
    seconds = costs.op_seconds.copy()
    covered = costs.covered.copy()
    notes = list(costs.notes)
    traced_kinds: dict[tuple[Any, ...], FloatArray | None] = {}
    for d, device in enumerate(cluster.devices):
        kind = _kind(device)
        if kind not in traced_kinds:
            traces = _trace_on(d, costs, flat, built, source, feeds, cluster, config)
            if isinstance(traces, Infeasible):
                notes.append(f"{device.name} could not be traced: {traces.message}")
                traced_kinds[kind] = None
            else:
                traced_kinds[kind] = _op_seconds(traces, device.name, flat, built)
        traced = traced_kinds[kind]
        if traced is not None:
            here = np.isfinite(seconds[:, d])
            seconds[here, d] = traced[here]
            covered[:] = True
    known = [traced is not None for traced in traced_kinds.values()]
    source_name = "measured" if all(known) else "mixed" if any(known) else costs.source
    return dataclasses.replace(
        costs, op_seconds=seconds, source=source_name, covered=covered, notes=tuple(notes)
    )


def _kind(device: Device) -> tuple[Any, ...]:
    """Devices with equal figures are priced once."""
    return (device.type, device.architecture, device.cores, device.slots, device.frequency_mhz,
            device.bandwidth_bytes_per_second)  # fmt: skip


def _trace_on(
    index: int,
    costs: Costs,
    flat: FlatGraph,
    built: BuiltGraph,
    source: SourceModel,
    feeds: Mapping[str, Any],
    cluster: Cluster,
    config: TraceConfig,
) -> Sequence[StepTrace] | Infeasible:
    """Traces the run with every op on one device, as far as it has kernels there."""
    graph_def = type(flat.graph_def)()
    graph_def.CopyFrom(flat.graph_def)
    runs_here = np.isfinite(costs.op_seconds[:, index])
    other = int(np.argmax(np.isfinite(costs.op_seconds).all(axis=0)))
    names = cluster.device_names
    for node, op in zip(graph_def.node, built.op_of_node.tolist(), strict=True):
        node.device = names[index] if runs_here[op] else names[other]
    _log.info("tracing %d steps on %s", config.num_traces, names[index])
    run = TrainingRun(feeds, flat.fetches, source.initialization, source.graph_def)
    return trace_run(graph_def, run, cluster, config)


def _op_seconds(
    traces: Sequence[StepTrace], device: str, flat: FlatGraph, built: BuiltGraph
) -> FloatArray:
    """f8[N]: median seconds of each op on the device, the executor's share included."""
    medians = median_op_seconds(traces)
    of_node = np.array([medians.get(n.name, {}).get(device, 0.0) for n in flat.graph_def.node])
    was_seen = of_node > 0.0
    between = [_idle_seconds(trace, device) for trace in traces]
    of_node[was_seen] += float(np.median(between)) / max(int(was_seen.sum()), 1)
    total: FloatArray = np.zeros(built.graph.num_ops)
    np.add.at(total, built.op_of_node, of_node)
    return total


def _idle_seconds(trace: StepTrace, device: str) -> float:
    """Time from the first start to the last end on a device in which no op of it ran."""
    here = np.array([name == device for name in trace.devices]) & ~trace.is_transfer
    if not here.any():
        return 0.0
    order = np.argsort(trace.start_seconds[here])
    starts, ends = trace.start_seconds[here][order], trace.end_seconds[here][order]
    reached = np.maximum.accumulate(ends)
    gaps = starts[1:] - reached[:-1]
    return float(gaps[gaps > 0].sum())
