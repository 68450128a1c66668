"""The costs of a run on a cluster: analytic, traced where the devices are here, out of the cache
where they were found before.
"""

import dataclasses
import functools
import hashlib
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import graphs.late_tensorflow as tf
from graphs.cluster import Cluster
from graphs.clusters.this_host import memory_bytes, processor
from graphs.flat_graph import FlatGraph
from graphs.op_graph import FloatArray
from graphs.pricing.costs import Costs, node_seconds, price
from graphs.pricing.grappler_costs import with_defaults
from graphs.pricing.node_work import node_work
from graphs.problem import Infeasible
from graphs.protos import DType
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.cost_cache import Arrays, CacheKey, CostCache
from tfplace.preparing.executed_run import STEPS, execute
from tfplace.preparing.loaded_model import LoadedModel
from tfplace.preparing.node_seconds import TracedNodes, traced_nodes
from tfplace.preparing.traced_costs import BUSY_SHARE, device_kind, with_traced_seconds

_COPY = re.compile(r"(/shard_\d+)?(/again_*)?$")
"""What runs for a shard, or once more to spare memory, takes what its op does, or a part of it."""
DeviceKind = tuple[object, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class TimedStep:
    """A step whose ops were timed.

    Attributes:
      node_names: [nodes] of its flat graph.
      alone_seconds: {kind of device: f8[nodes] analytic seconds}.
      traced: {kind of device: what real runs say there}; kinds that could not be timed lack.
    """

    node_names: Sequence[str]
    alone_seconds: Mapping[DeviceKind, FloatArray]
    traced: Mapping[DeviceKind, TracedNodes]

    def in_shards(
        self, kind: DeviceKind, node_names: Sequence[str], alone_seconds: FloatArray
    ) -> TracedNodes | None:
        """What real runs would say of the same step split; None where nothing is known.

        An op that stays whole takes as long as before. A copy takes its part of that by price, and
        the executor's share, which doesn't shrink; a part is at most all of it, where the unsplit
        op's sizes and so its price are not known. Sums, joins and cuts are new, so not known.

        Args:
          node_names: [nodes] of the split step; a copy of a/b is a/b/shard_m.
          alone_seconds: f8[nodes] their analytic seconds on such a device.
        """
        if kind not in self.traced:
            return None
        own, index = self.traced[kind], {name: i for i, name in enumerate(self.node_names)}
        whole_of = functools.partial(_COPY.sub, "", count=1)
        found = np.array([index.get(n, index.get(whole_of(n), -1)) for n in node_names])
        is_known = found >= 0
        whole = np.where(is_known, found, 0)
        is_copy = np.array([name not in index for name in node_names])
        price = self.alone_seconds[kind][whole]
        is_priced = np.isfinite(alone_seconds) & np.isfinite(price) & (price > 0.0)
        # How many times as long by price; 1 where no price is known.
        share = np.divide(alone_seconds, price, out=np.ones(len(price)), where=is_priced)
        share = np.where(is_copy, np.minimum(share, 1.0), 1.0)
        is_absent = is_known & own.is_absent[whole]
        fixed = np.where(is_absent, 0.0, np.minimum(own.overhead_seconds, own.seconds[whole]))
        seconds = fixed + share * (own.seconds[whole] - fixed)
        return dataclasses.replace(
            own,
            seconds=np.where(is_known, seconds, np.nan),
            is_absent=is_absent,
            place=own.place[whole],
            is_by_unsplit=True,
        )


def with_prices_of_whole(
    costs: Costs, op_names: Sequence[str], whole: Costs, whole_names: Sequence[str], parts: int
) -> Costs:
    """The same where a copy that has no price takes its part of what the unsplit op takes.

    Its sizes may be unknown in the split step alone. As good as free, such a step would win.

    Args:
      costs, op_names: of the split step; what was timed stays as it is.
      whole, whole_names: of the unsplit step.
      parts: into how many it is split.
    """
    if costs.covered.all() or not costs.source == whole.source == "analytic":
        return costs
    index = {name: number for number, name in enumerate(whole_names)}
    found = np.array([index.get(_COPY.sub("", name, count=1), -1) for name in op_names])
    is_known = ~costs.covered & (found >= 0) & whole.covered[found]
    if not is_known.any():
        return costs
    part = np.where(is_known[:, None], whole.op_seconds[found] / parts, 0.0)
    runs = np.isfinite(costs.op_seconds) & np.isfinite(part)
    seconds = np.where(runs, np.maximum(costs.op_seconds, part), costs.op_seconds)
    note = f"of these, {is_known.sum()} copies count as their part of what the unsplit op takes"
    return dataclasses.replace(
        costs, op_seconds=seconds, covered=costs.covered | is_known, notes=(*costs.notes, note)
    )


_log = logging.getLogger("tfplace")

BEGIN_SECONDS, SECONDS_PER_OP, LEAST_STEPS, LONGER = 2.0, 8e-4, 4, 1.3
"""What the fewest steps that tell anything take on a slow core: processes, making the graph ready
and running it; and how much longer than wanted that may take, rather than be in vain."""


def find_costs(
    model: LoadedModel,
    cluster: Cluster,
    trace: bool,
    cache: CostCache,
    limits: StepLimits = STEPS,
    unsplit: TimedStep | None = None,
) -> tuple[Costs, TimedStep | None]:
    """Prices every op on every device; and says what real runs of the unsplit step have shown.

    Args:
      trace: whether they are here and ops are to be timed on them.
      cache: where costs are kept.
      limits: how many steps are traced.
      unsplit: of a split step, the step as it came: nothing runs where this says enough.
    """
    asked = node_work(model.flat, model.properties)
    costs = price(model.flat, model.properties, model.built.op_of_node, cluster, asked)
    if not trace:
        return costs, None
    graph_parts = _graph_parts(model.flat)
    labels = {"model": model.source.path, "nodes": str(len(model.flat.graph_def.node))}
    filled = dataclasses.replace(
        asked, work=with_defaults(model.flat, model.properties, asked.work)
    )
    tracer = _Tracer(model, cluster, limits, unsplit)
    for d, device in enumerate(cluster.devices):
        kind = device_kind(device)
        if kind in tracer.alone_seconds:
            continue
        tracer.alone_seconds[kind] = node_seconds(model.flat, filled, device)
        parts = {**graph_parts, "device": repr(kind), "processor": _processor(device.address)}
        on = {**labels, "on": device.name}
        tracer.find(d, kind, cache, CacheKey("traced", parts, on))
    timed = tracer.timed() if model.split is None else unsplit
    return tracer.costs(costs), timed


class _Tracer:
    """Traces, or finds in the cache, one device of each kind."""

    def __init__(
        self, model: LoadedModel, cluster: Cluster, limits: StepLimits, unsplit: TimedStep | None
    ) -> None:
        self._model = model
        self._cluster = cluster
        self._limits = limits
        self._unsplit = unsplit
        self._names = [node.name for node in model.flat.graph_def.node]
        self._notes: list[str] = []
        self.alone_seconds: dict[tuple[object, ...], FloatArray] = {}
        self.traced: dict[tuple[object, ...], TracedNodes] = {}

    def find(self, d: int, kind: tuple[object, ...], cache: CostCache, key: CacheKey) -> None:
        kept = cache.read(key)
        found = traced_from(kept, len(self._names)) if kept else None
        if found is None and self._unsplit is not None:
            found = self._unsplit.in_shards(kind, self._names, self.alone_seconds[kind])
        if found is None:
            answer = self._trace(d, kind)
            if isinstance(answer, Infeasible):
                name = self._cluster.devices[d].name
                self._notes.append(f"{name} could not be traced: {answer.message}")
                return
            found = answer
            if found.background_share <= BUSY_SHARE:
                cache.write(key, traced_arrays(found))
        self.traced[kind] = found

    def timed(self) -> TimedStep:
        """What real runs said."""
        return TimedStep(self._names, self.alone_seconds, self.traced)

    def costs(self, costs: Costs) -> Costs:
        costs = dataclasses.replace(costs, notes=(*costs.notes, *self._notes))
        if not self.traced:
            return costs
        op_types = [node.op for node in self._model.flat.graph_def.node]
        return with_traced_seconds(
            costs,
            self.traced,
            self.alone_seconds,
            op_types,
            self._model.built.op_of_node,
            self._cluster.devices,
        )

    def _trace(self, d: int, kind: tuple[object, ...]) -> TracedNodes | Infeasible:
        """Runs everything on one device, as far as it has kernels there."""
        model, names = self._model, self._cluster.device_names
        device = self._cluster.devices[d]
        runs_here = np.isfinite(self.alone_seconds[kind])
        other = next((i for i, e in enumerate(self._cluster.devices) if e.type == "CPU"), d)
        unit_runs_here = np.ones(model.built.graph.num_ops, dtype=bool)
        np.logical_and.at(unit_runs_here, model.built.op_of_node, runs_here)
        device_of_node = np.where(unit_runs_here, d, other)[model.built.op_of_node]
        graph_def = model.flat.on_devices([names[i] for i in device_of_node])
        limits = self._limits
        _log.info("tracing up to %d steps on %s", limits.max_steps, names[d])
        step_seconds = float(self.alone_seconds[kind][runs_here].sum())
        needed = BEGIN_SECONDS + SECONDS_PER_OP * model.built.graph.num_ops
        needed += LEAST_STEPS * step_seconds
        if needed > LONGER * limits.all_seconds:
            why = f"it would take about {needed:.0f} s of the {limits.all_seconds:.0f} s for that"
            return Infeasible("timeout", why)
        limits = dataclasses.replace(limits, all_seconds=LONGER * limits.all_seconds)
        seen = execute(graph_def, model.opened_run(), _with_room(self._cluster), names[d], limits)
        if isinstance(seen, Infeasible):
            return seen
        return traced_nodes(
            seen, model.flat.graph_def.node, self.alone_seconds[kind], names[d], device.slots
        )


def _with_room(cluster: Cluster) -> Cluster:
    """The cluster with as much memory as this host has: one device may not hold all ops."""
    room = memory_bytes() // cluster.num_devices
    devices = [
        dataclasses.replace(each, memory_bytes=max(each.memory_bytes, room))
        if each.type == "CPU"
        else each
        for each in cluster.devices
    ]
    return dataclasses.replace(cluster, devices=devices)


def _graph_parts(flat: FlatGraph) -> dict[str, str]:
    """What traced costs depend on, besides the device: the graph, its feeds, and TensorFlow."""
    digest = hashlib.sha256(flat.graph_def.SerializeToString(deterministic=True))
    digest.update(repr((tuple(flat.feeds), tuple(flat.fetches))).encode())
    build = tf.sysconfig.get_build_info()
    return {
        "graph": digest.hexdigest(),
        "tensorflow": tf.__version__,
        "cuda_build": str(build.get("is_cuda_build")),
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", ""),
    }


def _processor(address: str) -> str:
    """This host's processor; of another host only its name is known."""
    if address:
        return address.rpartition(":")[0]
    return f"{processor() or 'unknown'}, {os.cpu_count()} cores"


_NUMBERS = {
    "overhead_seconds": float,
    "wall_time_coverage": float,
    "num_steps": int,
    "num_disturbed": int,
    "background_share": float,
}


def traced_arrays(traced: TracedNodes) -> Arrays:
    """The arrays of an entry."""
    numbers = {name: np.array(getattr(traced, name), dtype=np.float64) for name in _NUMBERS}
    arrays = {"seconds": traced.seconds, "is_absent": traced.is_absent, "place": traced.place}
    return {**arrays, **numbers}


def traced_from(arrays: Arrays, num_nodes: int) -> TracedNodes | None:
    """Back from `traced_arrays`; None, and a warning, where they are not of such a graph."""
    try:
        seconds = _checked(arrays["seconds"], "seconds", np.float64, num_nodes)
        if (seconds < 0.0).any():
            raise ValueError("negative seconds")
        numbers: dict[str, Any] = {name: kind(arrays[name]) for name, kind in _NUMBERS.items()}
        return TracedNodes(
            seconds=seconds,
            is_absent=_checked(arrays["is_absent"], "is_absent", np.bool_, num_nodes),
            place=_checked(arrays["place"], "place", np.int64, num_nodes),
            **numbers,
        )
    except (KeyError, ValueError, TypeError) as error:
        _log.warning("a cache entry of traced costs is damaged (%r): it is made anew", error)
        return None


def _checked(array: np.ndarray, name: str, dtype: DType, num_nodes: int) -> np.ndarray:
    if array.dtype != dtype or array.shape != (num_nodes,):
        raise ValueError(f"{name} is {array.dtype}{list(array.shape)}")
    return array
