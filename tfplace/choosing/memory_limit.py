"""Why no placement fits: which device lacks what, what fills it at its peak, what would help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.placement import Infeasible
from graphs.problem import Problem
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.order.advice import shards_that_fit
from tfplace.simulation.schedule import HeldIntervals, alive_at_peak, held_intervals
from tfplace.simulation.simulator import Simulator
from tfplace.units_text import bytes_text, share_text

# So many of what fills a device are named.
NUM_NAMED = 5


def why_nothing_fits(
    candidates: Sequence[Candidate],
    problem: Problem,
    lacking_in_turn: Mapping[int, float] = {},
    is_model: bool = True,
) -> str:
    """The message of a MemoryLimitError, about the candidate that lacks least.

    Args:
      candidates: none of which fits.
      problem: what they place.
      lacking_in_turn: {number of shards: bytes that they lack one after another, in order}, inf
        where there was no time to try; no others are advised then.
      is_model: whether it is a model's, with a batch and flags; else a file's, of arrays.
    """
    usable = problem.usable_bytes()
    candidate = nearest(candidates, problem)
    if candidate is None:
        found = "; ".join(
            f"{candidate.name}: {candidate.outcome.message}"
            for candidate in candidates
            if isinstance(candidate.outcome, Infeasible)
        )
        helps = ["a smaller --batch_size"] * is_model
        helps += ["more devices", "devices with more memory"]
    else:
        peaks = np.array(candidate.outcome.peak_bytes, dtype=np.float64)
        worst = int(np.argmax(peaks - usable))
        name = problem.device_names[worst]
        found = (
            f"{name} lacks {bytes_text(peaks[worst] - usable[worst])} even under the "
            f"{candidate.name} placement, the nearest: its peak is {bytes_text(peaks[worst])} "
            f"of {bytes_text(usable[worst])} usable; alive then: "
            f"{_alive_text(problem, candidate.device_of_op, worst)}"
        )
        helps = _more_memory(problem, peaks, worst)
        if is_model:
            helps = [*_smaller_steps(problem, candidate.device_of_op, peaks, worst), *helps]
            helps = helps[bool(lacking_in_turn and helps[0].startswith("--shards")) :]
    tried = "".join(
        f"; {_in_turn(shards)}, in order, lack{'s' * (shards == 1)} {bytes_text(lacking)}"
        if math.isfinite(lacking)
        else f"; {shards} shards were not tried, for that --budget_seconds is too short"
        for shards, lacking in lacking_in_turn.items()
    )
    reserve = "--memory_reserve" if is_model else "memory_reserve"
    use = f"{', '.join(helps[:-1])}, or {helps[-1]}" if len(helps) > 1 else helps[0]
    return (
        "searching for a placement that fits the devices' memory: found none; "
        f"{found}{tried}; wanted every device below its memory minus {reserve} "
        f"({problem.memory_reserve:g}); use {use}"
    )


def nearest(candidates: Sequence[Candidate], problem: Problem) -> Candidate | None:
    """The candidate that lacks least memory, all devices together; None where none lacks any."""
    lacking = [each for each in candidates if 0.0 < lacking_bytes(each, problem) < math.inf]
    return min(lacking, key=lambda each: lacking_bytes(each, problem), default=None)


def lacking_bytes(candidate: Candidate, problem: Problem) -> float:
    """What a placement lacks on all devices; inf where something else keeps it from running."""
    outcome = candidate.outcome
    if not isinstance(outcome, Infeasible):
        return 0.0
    if outcome.reason != "memory":
        return math.inf
    peaks = np.array(outcome.peak_bytes, dtype=np.float64)
    return float(np.maximum(peaks - problem.usable_bytes(), 0.0).sum())


def _alive_text(problem: Problem, device_of_op: IntArray, device: int) -> str:
    """The largest of what a device holds at its peak, with their bytes, and how much more."""
    graph = problem.graph
    sizes: dict[str, int] = {}
    for op in np.flatnonzero((device_of_op == device) & (graph.op_persistent_bytes > 0)).tolist():
        sizes[f"variable {graph.op_names[op]}"] = int(graph.op_persistent_bytes[op])
    held = held_intervals(problem, Simulator(problem, num_threads=1).schedule(device_of_op))
    for index in alive_at_peak(held, device).tolist():
        name = _held_name(problem, held, index)
        sizes[name] = sizes.get(name, 0) + int(held.bytes[index])
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))
    named = [f"{name} {bytes_text(sizes[name])}" for name in largest[:NUM_NAMED]]
    rest = largest[NUM_NAMED:]
    if rest:
        total = sum(sizes[name] for name in rest)
        named.append(f"and {len(rest):,} more of {bytes_text(total)} together")
    return ", ".join(named) or "nothing"


def _held_name(problem: Problem, held: HeldIntervals, index: int) -> str:
    """Outputs come first in HeldIntervals, then copies, then temporary buffers."""
    graph = problem.graph
    name = graph.op_names[int(held.op[index])]
    if index < graph.num_tensors:
        return f"{name}:{graph.tensor_output[index]}"
    num_temporaries = graph.num_ops
    if index >= len(held.op) - num_temporaries:
        return f"temporary of {name}"
    return f"copy of {name}"


def _smaller_steps(
    problem: Problem, device_of_op: IntArray, peaks: FloatArray, worst: int
) -> list[str]:
    """What of the model would make this placement fit, in numbers."""
    usable = problem.usable_bytes()
    persistent = np.zeros(problem.num_devices)
    np.add.at(persistent, device_of_op, problem.graph.op_persistent_bytes.astype(np.float64))
    room, rest = usable - persistent, peaks - persistent
    over = np.flatnonzero(peaks > usable)
    share = float(np.min(room[over] / np.maximum(rest[over], 1.0)))
    batch = (
        f"a --batch_size of at most about {share_text(math.floor(100 * share) / 100)} of this one "
        "(taking all but variables to shrink with it)"
    )
    if share < 0.01:
        batch = (
            "a smaller model (variables and constants alone take "
            f"{bytes_text(persistent[worst])}, which no batch size changes)"
        )
    in_turn = shards_that_fit(problem, device_of_op, worst, float(peaks[worst]))
    return [*([in_turn] if in_turn else []), batch]


def _in_turn(shards: int) -> str:
    return "the unsplit step" if shards == 1 else f"{shards} shards one after another"


def _more_memory(problem: Problem, peaks: FloatArray, worst: int) -> list[str]:
    """What of the cluster would; more devices are no help to what fits none of them by itself."""
    usable = problem.usable_bytes()
    same = [d for d in range(problem.num_devices) if usable[d] == usable[worst]]
    wanted = math.ceil(float(peaks[same].sum()) / max(float(usable[worst]), 1.0))
    wanted = max(wanted, len(same) + 1)
    memory = float(peaks[worst]) / max(1.0 - problem.memory_reserve, 1e-9)
    can_be_shared = _largest_together(problem) <= usable[worst]
    return [
        *([f"at least {wanted} such devices"] if can_be_shared else []),
        f"{bytes_text(memory)} of memory on {problem.device_names[worst]}",
    ]


def _largest_together(problem: Problem) -> float:
    """The most that one op, or the ops of a colocation group, hold for the whole step, in bytes."""
    group, held = problem.graph.colocation_group, problem.graph.op_persistent_bytes
    alone = float(held[group < 0].max(initial=0))
    in_groups = np.bincount(group[group >= 0], held[group >= 0])
    return max(alone, float(in_groups.max(initial=0.0)))
