"""From a model's path to the placement problem: load, open, price, constrain."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphs.building.build import BuiltGraph, build_op_graph, origin_devices
from graphs.building.flatten import flatten
from graphs.building.gradients import tied_gradients
from graphs.building.shapes import TensorProperties, infer
from graphs.cluster import Cluster
from graphs.clusters.discovery import find_cluster
from graphs.constraints import joined_by_user, pinned_devices, require_possible
from graphs.devices_asked import given_placement, kept_devices
from graphs.errors import UsageError
from graphs.executor_model import executor_of
from graphs.flat_graph import FlatGraph
from graphs.loading.feeds import feeds_of_opened, read_feed_shapes, read_feeds
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.op_graph import IntArray
from graphs.pricing.costs import Costs
from graphs.problem import Problem
from graphs.source_model import SourceModel
from rewrite.place_graph import known_origins, place_graph
from tfplace.measurement.presence import is_present
from tfplace.measurement.training_run import TrainingRun
from tfplace.preparing.cost_cache import CostCache
from tfplace.preparing.expert_marks import expert_placement
from tfplace.preparing.find_costs import PricedRun, find_costs
from tfplace.preparing.options import ProblemOptions
from tfplace.search.instance import Instance

_log = logging.getLogger("tfplace")


@dataclasses.dataclass(frozen=True)
class PreparedModel:
    """A model, its op graph, and the problem on one cluster.

    Attributes:
      source, flat, built: the model, opened, as arrays.
      cluster: the devices.
      is_present: whether they are here to run on.
      feeds: {tensor: array} of one run.
      costs: what ops cost, and how that is known.
      problem: all of it for the simulator.
      given: i4[N], the placement that the model came with.
      num_unknown_shapes: tensors whose size had to be guessed.
    """

    source: SourceModel
    flat: FlatGraph
    built: BuiltGraph
    cluster: Cluster
    is_present: bool
    feeds: Mapping[str, Any]
    costs: Costs
    problem: Problem
    given: IntArray
    num_unknown_shapes: int

    @functools.cached_property
    def instance(self) -> Instance:
        """What an algorithm needs of it."""
        return Instance(
            self.problem, self.given, expert_placement(self.flat.graph_def, self.problem)
        )

    @property
    def num_groups(self) -> int:
        """Units that can be placed apart: colocation groups and single ops."""
        group = self.problem.graph.colocation_group
        return int((group < 0).sum()) + len(np.unique(group[group >= 0]))


def prepare(options: ProblemOptions, trace: bool = True) -> PreparedModel:
    """Prepares a problem.

    Args:
      options: model, cluster, constraints.
      trace: whether to time ops on the devices where they are present.

    Raises:
      ModelError, FeedError, ClusterError, ConstraintError, UsageError: bad input.
    """
    if not 0.0 <= options.memory_reserve < 1.0:
        raise UsageError(
            f"reading --memory_reserve: {options.memory_reserve} is no fraction; wanted 0 <= x < 1"
        )
    cluster = find_cluster(options.cluster)
    source = load(options.model, _load_options(options))
    # A made training step has rewritten the model's conditionals: their ops are not the model's.
    is_own = source.origins is None
    flat = flatten(source.graph_def, source.feeds, source.fetches, open_conditionals=is_own)
    properties = infer(flat)
    feeds = _feeds(options, source, flat, properties)
    built = build_op_graph(flat, properties)
    _log.info("%s: %d ops; %s", source.path, built.graph.num_ops, source.step_origin)
    present = is_present(cluster)
    costs = find_costs(
        PricedRun(source, flat, properties, built, feeds),
        cluster,
        present and trace and cluster.num_devices > 1,
        CostCache(options.cost_cache),
    )
    kept = kept_devices(flat, built, costs, cluster) if options.keep_devices else None
    problem = make_problem(built, costs, cluster, options, kept)
    return PreparedModel(
        source=source,
        flat=flat,
        built=built,
        cluster=cluster,
        is_present=present,
        feeds=feeds,
        costs=costs,
        problem=problem,
        given=given_placement(flat, built, cluster, problem.allowed()),
        num_unknown_shapes=len(properties.unknown),
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
      built, costs, cluster, options: the parts.
      kept: i4[N], what ops are pinned to that no --pin matches; -1 for nothing.

    Raises:
      ConstraintError: some ops have no device left.
    """
    names = built.graph.op_names
    graph = built.graph
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
    require_possible(
        problem.allowed(),
        costs.op_seconds,
        pinned,
        graph.colocation_group,
        names,
        cluster.device_names,
    )
    return problem


def _load_options(options: ProblemOptions) -> LoadOptions:
    """What the user said about the run; arrays to feed say what their shapes are."""
    if options.feed_file is None:
        return options.load
    return dataclasses.replace(options.load, fed_shape=read_feed_shapes(options.feed_file))


def _feeds(
    options: ProblemOptions, source: SourceModel, flat: FlatGraph, properties: TensorProperties
) -> Mapping[str, Any]:
    if options.feed_file is not None:
        return read_feeds(options.feed_file, source.feeds)
    return feeds_of_opened(flat, properties, source.feeds, options.seed)


def placed_run_graph(prepared: PreparedModel, device_of_op: IntArray) -> Any:
    """The model's run graph with these devices written into it."""
    wanted = origin_devices(
        prepared.flat, prepared.built, device_of_op, prepared.problem.device_names
    )
    known = known_origins(prepared.source.graph_def, wanted)
    return place_graph(prepared.source.graph_def, known.device_of_origin).graph_def


def training_run(prepared: PreparedModel) -> TrainingRun:
    """What one run of the model is, for the measuring process."""
    return TrainingRun(
        feeds=prepared.feeds,
        fetches=prepared.source.fetches,
        initialization=prepared.source.initialization,
    )
