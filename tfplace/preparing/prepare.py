"""From a model's path to the placement problem: load, open, price, constrain."""

import dataclasses
import functools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphs.building.build import BuiltGraph, origin_devices
from graphs.building.colocation import with_lists_together
from graphs.building.executed_controls import step_end, tied_end, without_implied, without_step_end
from graphs.building.gradients import tied_gradients
from graphs.cluster import Cluster
from graphs.clusters.discovery import find_cluster, with_memory, with_precision
from graphs.constraints import joined_by_user, matched_ops, pinned_devices, require_possible
from graphs.devices_asked import given_placement, kept_beside_the_run, kept_devices
from graphs.errors import UsageError
from graphs.executor_model import executor_of
from graphs.flat_graph import Origin
from graphs.host.freed_memory import give_back, uncollected
from graphs.machine_numbers import on_taught_machine
from graphs.op_graph import IntArray
from graphs.placement_file import beside_others, read_placement
from graphs.pricing.costs import Costs
from graphs.pricing.grappler_costs import optimized
from graphs.problem import Problem
from graphs.protos import GraphDef
from graphs.source_model import SourceModel
from graphs.zoo import expert_placement as expert_gpus
from rewrite.order.order_edges import OrderEdge, known_order
from rewrite.place_graph import known_origins, place_graph
from rewrite.split.states import Place
from rewrite.split.write.weights import devices_of_pieces
from tfplace.measurement.presence import is_present
from tfplace.measurement.training_run import ExecutedNode
from tfplace.preparing.cost_cache import CostCache
from tfplace.preparing.executed_graph import attribute
from tfplace.preparing.executed_run import STEPS
from tfplace.preparing.find_costs import TimedStep, find_costs, with_prices_of_whole
from tfplace.preparing.loaded_model import LoadedModel, load_model
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.steps_read import StepsRead
from tfplace.preparing.traced_costs import op_turn
from tfplace.preparing.written_devices import written_devices
from tfplace.search.instance import Instance

_log = logging.getLogger("tfplace")

LEAST_SECONDS_ALONE = 5.0
"""The budget from which on the ops of a single device are timed."""


class OrderOfPlacement(Protocol):
    """Finds what should start when."""

    def __call__(self, prepared: "PreparedModel", device_of_op: IntArray) -> Sequence[OrderEdge]:
        """Control edges for a placement i4[N] of the prepared model, each within a device."""


@dataclasses.dataclass(frozen=True)
class PreparedModel(LoadedModel):
    """A model and the problem of placing it on one cluster.

    Attributes:
      cluster: the devices.
      is_present: whether they are here to run on.
      costs: what ops cost, and how that is known.
      problem: all of it for the simulator.
      given: i4[N], the placement that the model came with.
      matched: a sentence about each --pin and --no_split.
      order: finds the order edges that a placement is written and run with; None for none.
      steps_read: the same step in several numbers of shards; None where one was given.
      unlimited: the problem with all devices, where `problem` may not use all for --max_devices.
      timed: what real runs of the unsplit step's ops say; None where there were none.
      unplanned: the same before a memory plan was written into it; None where there is none.
    """

    cluster: Cluster
    is_present: bool
    costs: Costs
    problem: Problem
    given: IntArray
    matched: Sequence[str] = ()
    unlimited: Problem | None = None
    order: OrderOfPlacement | None = None
    steps_read: StepsRead | None = None
    timed: TimedStep | None = None
    unplanned: "PreparedModel | None" = None

    @functools.cached_property
    def instance(self) -> Instance:
        """What an algorithm needs of it."""
        return Instance(
            self.problem, self.given, expert_placement(self.flat.graph_def, self.problem)
        )

    @functools.cached_property
    def op_turn(self) -> IntArray | None:
        """i4[N]: the ops' places as a run listed them, else as Grappler does; None: it fails."""
        if self.costs.op_turn is not None:
            return self.costs.op_turn
        made = optimized(self.flat, self.properties)
        if made is None:
            return None
        executed = [ExecutedNode(n.name, n.op, n.device, tuple(n.input)) for n in made.node]
        place = attribute(self.flat.graph_def.node, executed).place
        return op_turn(place, self.built.op_of_node, self.problem.num_ops)

    def in_model(self) -> npt.NDArray[np.bool_]:
        """b[N]: whether the model has the op; those that opening the calls added it has not."""
        of_node = [bool(origin.node) for origin in self.flat.origins]
        result = np.zeros(self.problem.num_ops, dtype=bool)
        result[self.built.op_of_node[of_node]] = True
        return result

    def placement_in(self, path: str) -> IntArray:
        """i4[N]: the placement in a file; ops that it doesn't name lie as the model came.

        No file names the ops that opening the calls added, so these lie beside the others.

        Raises:
          PlacementError: as `read_placement`.
        """
        graph, default = self.problem.graph, np.where(self.in_model(), self.given, -1)
        read = read_placement(path, graph.op_names, self.problem.device_names, default)
        return beside_others(read, graph, self.problem.op_seconds)

    def opened_on(self, device_of_op: IntArray) -> GraphDef:
        """The opened graph with the devices of a placement i4[N] on its nodes."""
        names = self.problem.device_names
        return self.flat.on_devices([names[d] for d in device_of_op[self.built.op_of_node]])

    def order_edges(self, device_of_op: IntArray) -> Sequence[OrderEdge]:
        """What a placement i4[N] is written with beside its devices."""
        return () if self.order is None else self.order(self, device_of_op)

    def placed_run_graph(self, device_of_op: IntArray, in_order: bool = True) -> GraphDef:
        """The model's run graph with a placement i4[N] and, unless left out, its order."""
        known = known_origins(self.source.graph_def, self._devices(device_of_op))
        order = self.order_edges(device_of_op) if in_order else ()
        order = known_order(self.source.graph_def, order)
        return place_graph(self.source.graph_def, known.device_of_origin, order).graph_def

    def _devices(self, device_of_op: IntArray) -> Mapping[Origin, str]:
        devices = origin_devices(self.flat, self.built, device_of_op, self.problem.device_names)
        cut = () if self.split is None else self.split.step.pieces
        # Without a device, a load would put weights that no GPU has to hold whole on GPU 0.
        whole = {Origin("", handle): "/device:CPU:0" for handle in cut}
        return {**whole, **devices_of_pieces(self.source.graph_def, self.flat, devices), **devices}

    def devices_to_write(self, device_of_op: IntArray, keep_devices: bool) -> Mapping[Origin, str]:
        """{node of the model, also in functions: device} of a placement i4[N].

        Args:
          keep_devices: whether the model's own device strings beside the run stay, too.
        """
        devices, names = self._devices(device_of_op), self.problem.device_names
        if keep_devices:
            devices = {**devices, **kept_beside_the_run(self.source.graph_def, self.flat, names)}
        return written_devices(devices, self.cluster)


def _nobody(source: SourceModel) -> None:
    """Told of a model, does nothing."""


@uncollected()
def prepare(
    options: ProblemOptions,
    trace: bool = True,
    before_pricing: Callable[[LoadedModel, bool], None] | None = None,
    trace_seconds: float = math.inf,
    earlier: PreparedModel | None = None,
    on_split: Callable[[SourceModel], None] = _nobody,
    budget_seconds: float = 0.0,
) -> PreparedModel:
    """Prepares a problem.

    Args:
      trace: whether to time ops on the devices where they are present.
      before_pricing: called with the model, when it is read, and whether ops will be timed.
      trace_seconds: the longest that timing the ops of one device may take; what isn't timed then
        is priced without.
      earlier: the same model, prepared before, in any number of shards: it is not read again, and
        where the ops of its step as it came were timed, a split one's are priced by that. With
        options.planned, the model into which that plan is written.
      on_split: is given the model with the split step before its ops are read, unless they will be
        timed.
      budget_seconds: of a search; one device leaves nothing to search, so there is time for ops.

    Raises:
      ModelError, FeedError, ClusterError, ConstraintError, UsageError: bad input.
    """
    if not 0.0 <= options.memory_reserve < 1.0:
        raise UsageError(
            f"reading --memory_reserve: {options.memory_reserve} is no fraction; wanted 0 <= x < 1"
        )
    cluster = with_precision(find_cluster(options.cluster), options.precision)
    cluster = with_memory(cluster, options.device_memory)
    present = is_present(cluster)
    has_time = cluster.num_devices > 1 or budget_seconds >= LEAST_SECONDS_ALONE
    has_time |= earlier is not None and earlier.timed is not None  # what that says costs nothing
    is_timed = present and trace and has_time
    places = places_of_shards(cluster, options.num_shards)
    to_split = None if earlier is None else earlier.to_split
    model = load_model(options, places, _nobody if is_timed else on_split, to_split, earlier)
    flat, built = model.flat, model.built
    _log.info("%s: %d ops; %s", options.model, built.graph.num_ops, model.source.step_origin)
    if present:
        dict(model.feeds)  # they will be read: what is wrong with them is said before the search
    give_back()  # a large model is read several times over
    if before_pricing is not None:
        before_pricing(model, is_timed)
    limits = dataclasses.replace(STEPS, all_seconds=trace_seconds)
    cache, known = CostCache(options.cost_cache), None if earlier is None else earlier.timed
    began = time.process_time()
    costs, timed = find_costs(model, cluster, is_timed, cache, limits, known)
    if earlier is not None and earlier.split is None and model.split is not None:
        own, whole = built.graph.op_names, earlier.built.graph.op_names
        costs = with_prices_of_whole(costs, own, earlier.costs, whole, options.num_shards)
    pricing = time.process_time() - began
    model = dataclasses.replace(model, reading_seconds=model.reading_seconds + pricing)
    kept = kept_devices(flat, built, costs, cluster) if options.keep_devices else None
    if len({device.task for device in cluster.devices}) > 1:
        group = built.graph.colocation_group
        group = with_lists_together(flat, model.properties, built.op_of_node, group)
        graph = dataclasses.replace(built.graph, colocation_group=group)
        built = dataclasses.replace(built, graph=graph)
    problem = make_problem(built, costs, cluster, options, kept)
    return PreparedModel(
        **vars(model),
        cluster=cluster,
        is_present=present,
        costs=costs,
        problem=problem,
        given=given_placement(flat, built, cluster, problem.allowed()),
        matched=matched_ops(options.pins, options.no_split, built.graph.op_names),
        timed=timed,
        unplanned=None if options.planned is None else earlier,
    )


def make_problem(
    built: BuiltGraph,
    costs: Costs,
    cluster: Cluster,
    options: ProblemOptions,
    kept: IntArray | None = None,
) -> Problem:
    """Puts op graph, costs and cluster together under the user's constraints.

    Args:
      kept: i4[N], what ops are pinned to that no --pin matches; -1 for nothing.

    Raises:
      ConstraintError: some ops have no device left.
    """
    names = built.graph.op_names
    graph = built.graph
    if any(device.type != "CPU" for device in cluster.devices):  # workspaces are those of CPUs
        graph = dataclasses.replace(graph, op_temp_bytes=built.sums_bytes)
    if options.num_shards > 1:
        graph = without_step_end(without_implied(graph))
    if options.no_split:
        joined = joined_by_user(options.no_split, names, graph.colocation_group)
        graph = dataclasses.replace(graph, colocation_group=joined)
    pinned = pinned_devices(options.pins, names, cluster.device_names)
    if kept is not None:
        pinned = np.where(pinned >= 0, pinned, kept).astype(np.int32)
    problem = Problem(
        graph=graph,
        op_seconds=costs.op_seconds,
        pinned_device=pinned,
        device_names=cluster.device_names,
        device_types=tuple(device.type for device in cluster.devices),
        device_slots=np.array([d.slots for d in cluster.devices], dtype=np.int32),
        device_memory_bytes=np.array([d.memory_bytes for d in cluster.devices], dtype=np.int64),
        link_latency=cluster.link_latency,
        link_bytes_per_second=cluster.link_bytes_per_second,
        link_channels=cluster.link_channels(),
        memory_reserve=options.memory_reserve,
        communication=cluster.communication,
        executor=executor_of(cluster, graph.op_types, costs.memory_share, costs.op_turn),
    )
    if not options.free_gradients:
        tied = tied_gradients(names, graph.colocation_group, problem.allowed())
        graph = dataclasses.replace(graph, colocation_group=tied)
        problem = dataclasses.replace(problem, graph=graph)
    if options.num_shards > 1:
        end = step_end(without_implied(built.graph)).ops
        tied = tied_end(graph.colocation_group, end, problem.allowed())
        graph = dataclasses.replace(graph, colocation_group=tied)
        problem = dataclasses.replace(problem, graph=graph)
    problem = on_taught_machine(problem, cluster)
    require_possible(problem)
    return problem


def expert_placement(graph_def: GraphDef, problem: Problem) -> IntArray | None:
    """i4[N] from the marks that `tfplace graph` leaves on ops; None where there are none.

    A cluster without GPUs has its CPUs taken for them.
    """
    gpus = [d for d, kind in enumerate(problem.device_types) if kind == "GPU"]
    gpus = gpus or list(range(problem.num_devices))
    gpu_of_op = expert_gpus(graph_def, problem.graph.op_names, len(gpus))
    if gpu_of_op is None:
        return None
    chosen = [gpu_of_op.get(name) for name in problem.graph.op_names]
    wanted = np.array([-1 if gpu is None else gpus[gpu] for gpu in chosen], dtype=np.int32)
    return completed(wanted, problem.allowed(), problem.graph.colocation_group)


def completed(wanted: IntArray, allowed: np.ndarray, colocation_group: IntArray) -> IntArray:
    """i4[N]: a partial placement made whole.

    Ops of a colocation group follow the first that has a device; who has none, or no kernel
    there, goes to the first device that it may lie on (the CPU comes first in a cluster).

    Args:
      wanted: i4[N], -1 where nothing is said.
      allowed: bool[N, D].
      colocation_group: i4[N].
    """
    result = np.array(wanted)
    said = np.flatnonzero((wanted >= 0) & (colocation_group >= 0))
    of_group = np.full(int(colocation_group.max(initial=-1)) + 1, -1, dtype=np.int32)
    of_group[colocation_group[said[::-1]]] = wanted[said[::-1]]
    member = colocation_group >= 0
    result[member] = of_group[colocation_group[member]]
    possible = (result >= 0) & allowed[np.arange(len(result)), np.maximum(result, 0)]
    return np.where(possible, result, np.argmax(allowed, axis=1)).astype(np.int32)


def places_of_shards(cluster: Cluster, num_shards: int) -> tuple[Place, ...]:
    """[M] host and device of each shard if they are dealt to the devices that compute, one by one.

    Tensors go from one device to the next by that (rewrite/split/building/collectives.py). So it is
    data parallelism that decides which shards share a device, whatever the search finds later.

    Returns:
      Hosts, and devices of all hosts, numbered from 0 as the cluster has them.
    """
    devices = [d for d in cluster.devices if d.type != "CPU"] or list(cluster.devices)
    # Hosts have addresses or network cards, or are tasks. Tasks of one device each and without
    # addresses are processes on this host.
    is_host = max(Counter(device.task for device in devices).values()) > 1
    names = [device.host or (device.task if is_host else "") for device in devices]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    each = [(number[name], device) for device, name in enumerate(names)]
    return tuple(each[shard % len(each)] for shard in range(num_shards))
