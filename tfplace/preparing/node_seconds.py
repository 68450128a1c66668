"""Seconds of the user's nodes on one device, out of a run that was looked at."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphs.by_key import by_key
from graphs.op_graph import FloatArray
from graphs.protos import NodeDef
from tfplace.measurement.step_stats import StepTrace
from tfplace.preparing.executed_graph import attribute
from tfplace.preparing.executed_run import ExecutedRun


@dataclasses.dataclass(frozen=True)
class TracedNodes:
    """What a traced run says of a flat graph's nodes on the device that it ran on.

    Attributes:
      seconds: f8[nodes] of one step; nan where the node is part of what runs there, but never
        ran in a traced step, or ran elsewhere.
      is_absent: bool[nodes] folded, merged, taken over by another, or not needed; its seconds
        are its share of what took it over, or 0.
      place: i8[nodes] where TensorFlow lists it among what it runs, as Attribution has it.
      overhead_seconds: what the executor takes per op that runs; in `seconds` already.
      wall_time_coverage: share [0, 1] of the step's wall time that the nodes' own rows in the
        traces account for.
      num_steps, num_disturbed: traced steps, and how many of them did not count.
      background_share: share of this machine's CPU time that others used meanwhile.
      is_by_unsplit: whether the unsplit step ran instead; then `place` says nothing.
    """

    seconds: FloatArray
    is_absent: npt.NDArray[np.bool_]
    place: npt.NDArray[np.int64]
    overhead_seconds: float
    wall_time_coverage: float
    num_steps: int
    num_disturbed: int
    background_share: float = 0.0
    is_by_unsplit: bool = False


def traced_nodes(
    run: ExecutedRun,
    nodes: Sequence[NodeDef],
    alone_seconds: FloatArray,
    device: str,
    slots: int = 1,
) -> TracedNodes:
    """Distributes what was seen over the user's nodes.

    The steps' untraced wall time is what everything has to add up to: what the rows do not
    explain (the executor between the ops) is spread evenly over all ops that ran, and where
    tracing itself made ops slower, they all shrink alike. Where an empty step seemed to take as
    long as a whole one, which only a disturbed machine can show, rows stand for themselves.

    Args:
      run: of the graph with every node on `device`, as far as it has a kernel there.
      alone_seconds: f8[nodes] analytic seconds on the device, to share fused ops' time by.
      device: the cluster's spelling.
      slots: ops that the device runs at once.
    """
    traces = run.steady_traces()
    attribution = attribute(nodes, run.nodes)
    rows = by_key(each for trace in traces for each in trace.seconds_of_ops().items())
    # {(op, device): seconds of a step}. An op that runs only in some steps (a summary, a branch)
    # costs what it costs on average.
    everywhere = {
        key: float(np.median(each)) * len(each) / len(traces) for key, each in rows.items()
    }
    here = {op: seconds for (op, where), seconds in everywhere.items() if where == device}
    busy = float(np.median([_busy_seconds(trace) for trace in traces]))
    work = run.work_seconds or busy
    shrink = min(work / busy, 1.0) if busy else 1.0
    gaps = max(work - busy, 0.0)
    overhead = slots * gaps / max(len(everywhere), 1)
    full = {op: shrink * seconds + overhead for op, seconds in here.items()}
    seconds = attribution.shared(full, alone_seconds)
    ran = np.zeros(len(nodes), dtype=bool)
    for op in here:
        ran[list(attribution.nodes_of.get(op, ()))[:1]] = True
    seconds[~ran & ~attribution.is_absent] = np.nan
    own = shrink * sum(s for (op, _), s in everywhere.items() if op in attribution.nodes_of)
    return TracedNodes(
        seconds=seconds,
        is_absent=attribution.is_absent & ~ran,
        place=attribution.place,
        overhead_seconds=overhead,
        wall_time_coverage=min(own / work, 1.0) if work else 0.0,
        num_steps=len(run.traces),
        num_disturbed=len(run.traces) - len(traces),
        background_share=run.background_share,
    )


def _busy_seconds(trace: StepTrace) -> float:
    """Time in which anything ran anywhere."""
    if not len(trace.start_seconds):
        return 0.0
    order = np.argsort(trace.start_seconds, kind="stable")
    starts, ends = trace.start_seconds[order], trace.end_seconds[order]
    reached = np.concatenate([[starts[0]], np.maximum.accumulate(ends)[:-1]])
    return float(np.maximum(ends - np.maximum(starts, reached), 0.0).sum())
