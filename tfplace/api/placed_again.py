"""A step that was placed, traced for other shapes: placed as before, without another search."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Problem
from rewrite.emit import emit
from rewrite.output_dir import atomic_directory
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.choosing.proof import proven_structure
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import prepare
from tfplace.simulation.simulated import simulated

_log = logging.getLogger("tfplace")


def place_like(options: OptimizeOptions, plan: Mapping[str, str]) -> None:
    """Writes a model with the devices that its ops have in a plan.

    Args:
      options: the model, the cluster, the output; nothing is searched, timed or run, but it is
        proven by structure that only devices differ.
      plan: {op: device}, a placement.json; an op that it doesn't name goes to its neighbours.

    Raises:
      VerificationError: more than devices differs.
      TfplaceError: the model can't be read or written.
    """
    prepared = prepare(options.problem, trace=False)
    device_of_op = legal(prepared.problem, planned(prepared.problem, plan))
    outcome = simulated(prepared.problem, device_of_op)
    if not outcome.is_feasible:
        _log.warning("placing the step for other shapes as before: %s", outcome.reason)
    devices = prepared.devices_to_write(device_of_op, options.problem.keep_devices)
    with atomic_directory(options.output_dir or "", overwrite=False) as made:
        emit(prepared.source, devices, made, {})
        proven_structure(prepared.source, made)


def planned(problem: Problem, plan: Mapping[str, str]) -> IntArray:
    """i4[N]: each op's device in the plan; what it doesn't name goes to the first op that it uses,
    what uses nothing to the first op that uses it.

    Args:
      problem: its ops are in a topological order.
      plan: {op: device}.
    """
    graph = problem.graph
    number = {name: d for d, name in enumerate(problem.device_names)}
    wanted = np.array([number.get(plan.get(name, ""), -1) for name in graph.op_names], np.int32)
    source = graph.tensor_producer[graph.use_tensor]
    by_user = np.argsort(graph.use_op, kind="stable")
    for use in by_user.tolist():
        if wanted[graph.use_op[use]] < 0:
            wanted[graph.use_op[use]] = wanted[source[use]]
    for use in by_user[::-1].tolist():
        if wanted[source[use]] < 0:
            wanted[source[use]] = wanted[graph.use_op[use]]
    wanted[wanted < 0] = working_devices(problem)[0]
    return wanted
