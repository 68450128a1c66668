"""At most K of a cluster's devices: which ones, and the problem of placing on them alone.

Only devices that work is spread over are counted: beside GPUs the CPUs of their hosts, which
TensorFlow needs anyway, are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graphs.counted import counted
from graphs.errors import ConstraintError
from graphs.op_graph import IntArray
from graphs.placement import Infeasible
from graphs.problem import Problem
from tfplace.algorithms.placers.legal import working_devices
from tfplace.preparing.prepare import PreparedModel

LIMIT = "max_devices"
"""The reason of a placement that uses more devices than --max_devices allows."""


def at_most(prepared: PreparedModel, max_devices: int | None) -> PreparedModel:
    """The same model to be placed on at most `max_devices` devices; None leaves it as it is.

    Raises:
      ConstraintError: pins and kernels need more of them.
    """
    problem = prepared.problem
    if max_devices is None or max_devices >= len(working_devices(problem)):
        return prepared
    limited = limited_to(problem, chosen_devices(problem, max_devices))
    return dataclasses.replace(prepared, problem=limited, unlimited=problem)


def chosen_devices(problem: Problem, max_devices: int) -> Sequence[int]:
    """Which `max_devices` of the counted devices are used: those that pins and kernels need, then
    the fastest, of equally fast ones those that are linked best to the ones that were chosen.

    Raises:
      ConstraintError: pins and kernels need more of them.
    """
    working, allowed = working_devices(problem).tolist(), problem.allowed()
    forced = allowed[allowed.sum(axis=1) == 1].any(axis=0)
    chosen = [device for device in working if forced[device]]
    if len(chosen) > max_devices:
        names = ", ".join(problem.device_names[device] for device in chosen)
        raise ConstraintError(
            f"placing on at most {counted(max_devices, 'device')}: pins and kernels need {names}, "
            f"which are {len(chosen)}; raise --max_devices or take pins away"
        )
    anywhere = np.isfinite(problem.op_seconds[:, working]).all(axis=1)
    seconds = problem.op_seconds[anywhere].sum(axis=0)
    far = problem.link_latency + 1.0 / np.maximum(problem.link_bytes_per_second, 1e-300)
    while len(chosen) < max_devices:
        rest = [device for device in working if device not in chosen]
        chosen.append(min(rest, key=lambda d: (seconds[d], far[d, chosen].sum(), d)))
    return sorted(chosen)


def limited_to(problem: Problem, chosen: Sequence[int]) -> Problem:
    """The same problem without kernels on counted devices that were not chosen.

    Raises:
      ConstraintError: an op has no other device.
    """
    dropped = [device for device in working_devices(problem) if device not in chosen]
    op_seconds = problem.op_seconds.copy()
    op_seconds[:, dropped] = np.inf
    limited = dataclasses.replace(problem, op_seconds=op_seconds)
    stuck = np.flatnonzero(~limited.allowed().any(axis=1))
    if len(stuck):
        raise ConstraintError(
            f"placing on {', '.join(problem.device_names[d] for d in chosen)} alone: op "
            f"{problem.graph.op_names[stuck[0]]!r} can lie on none of them; raise --max_devices"
        )
    return limited


def num_counted(problem: Problem, device_of_op: IntArray) -> int:
    """How many of the counted devices a placement i4[N] uses."""
    return len(np.intersect1d(device_of_op, working_devices(problem)))


def too_many(prepared: PreparedModel, device_of_op: IntArray) -> Infeasible | None:
    """Why a placement i4[N] breaks --max_devices; None where it keeps to it."""
    if prepared.unlimited is None:
        return None
    used = num_counted(prepared.unlimited, device_of_op)
    most = len(working_devices(prepared.problem))
    seconds = prepared.problem.op_seconds[np.arange(len(device_of_op)), device_of_op]
    if np.isfinite(seconds).all():
        return None
    if used <= most:
        return Infeasible(LIMIT, f"it lies on other devices than the {most} that were chosen")
    return Infeasible(LIMIT, f"it uses {used} devices, and --max_devices={most}")
