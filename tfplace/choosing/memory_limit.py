"""Why no placement fits: which device lacks what, what fills it, what helps; and --max_devices."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.counted import counted
from graphs.errors import ConstraintError
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Infeasible, Problem
from tfplace.algorithms.placers.legal import working_devices
from tfplace.choosing.baselines import Candidate
from tfplace.grouping.copies import is_split
from tfplace.preparing.prepare import PreparedModel
from tfplace.simulation.schedule import HeldIntervals, alive_at_peak, held_intervals
from tfplace.simulation.simulated import Simulated
from tfplace.simulation.simulator import Simulator
from tfplace.units_text import bytes_text, share_text

# So many of what fills a device are named.
NUM_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Advice:
    """What may be advised where nothing fits.

    Attributes:
      is_model: of a model, with a batch and flags; else of a file of arrays.
      has_smaller_batch: whether its batch has more than one example.
    """

    is_model: bool = True
    has_smaller_batch: bool = True


def why_nothing_fits(
    candidates: Sequence[Candidate],
    problem: Problem,
    lacking_in_turn: Mapping[int, float] = {},
    advice: Advice = Advice(),
    planned: Simulated | None = None,
) -> str:
    """The message of a MemoryLimitError, about the candidate that lacks least.

    Args:
      candidates: none of which fits.
      problem: what they place.
      lacking_in_turn: {number of shards: bytes that they lack one after another, in order}, inf
        where there was no time to try; no others are advised then.
      advice: what may be advised.
      planned: about the least that the nearest takes with a memory plan, where one was found.
    """
    is_model = advice.is_model
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
            f"{candidate.name} placement{', the nearest' * (planned is None)}: its peak is "
            f"{bytes_text(peaks[worst])} of {bytes_text(usable[worst])} usable; alive then: "
            f"{_alive_text(problem, candidate.device_of_op, worst)}"
        )
        least = peaks
        if planned is not None:
            # What it was made for, so that it is found again; figures are told in three digits.
            least = np.minimum(1.005 * planned.problem.usable_bytes(), peaks)
            placed = planned.known_schedule().device_of_op
            found += (
                f"; with ops that run again or tensors that wait on the host it takes about "
                f"{bytes_text(least[worst])}, alive then: "
                f"{_alive_text(planned.problem, placed, worst)}"
            )
        helps = _more_memory(problem, least, worst)
        if advice.has_smaller_batch and is_model:
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
    return f"temporary of {name}" if index >= len(held.op) - graph.num_ops else f"copy of {name}"


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
    group, held = problem.graph.colocation_group, problem.graph.op_persistent_bytes
    in_groups = np.bincount(group[group >= 0], held[group >= 0])
    largest = max(held[group < 0].max(initial=0), in_groups.max(initial=0.0))  # for the whole step
    largest = max(largest, problem.graph.op_temp_bytes.max(initial=0))
    can_be_shared = largest <= usable[worst]
    return [
        *([f"at least {wanted} such devices"] if can_be_shared else []),
        f"{bytes_text(memory)} of memory on {problem.device_names[worst]}",
    ]


# At most K of a cluster's devices: which ones, and the problem of placing on them alone.
#
# Only devices that work is spread over are counted: beside GPUs the CPUs of their hosts, which
# TensorFlow needs anyway, are not.

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
    if np.isfinite(prepared.problem.op_seconds[np.arange(len(device_of_op)), device_of_op]).all():
        return None
    if used <= most:
        return Infeasible(LIMIT, f"it lies on other devices than the {most} that were chosen")
    return Infeasible(LIMIT, f"it uses {used} devices, and --max_devices={most}")


COUNTS = (2, 4, 8, 16, 32)
_UPDATES = ("ResourceApply", "ResourceSparseApply", "AssignSubVariableOp", "AssignAddVariableOp")


def shards_that_fit(
    problem: Problem, device_of_op: IntArray, device: int, peak_bytes: float
) -> str:
    """What to ask for, with its figures; empty where it is no training step, or would not help.

    Args:
      problem: an unsplit step.
      device_of_op: i4[N] a placement that doesn't fit.
      device: the one that lacks most.
      peak_bytes: what it would hold.
    """
    kept = _kept_bytes(problem, device_of_op, device)
    count = _least_count(problem, kept, device, peak_bytes)
    if count is None:
        return ""
    variables, gradients = kept
    part = (peak_bytes - variables) / count
    return (
        f"--shards={count} --order=edges, which works on {count} parts of the batch one after "
        f"another (about {bytes_text(variables + gradients + part)}: {bytes_text(variables)} of "
        f"variables, {bytes_text(gradients)} of gradients, {bytes_text(part)} of one part)"
    )


def counts_in_turn(
    problem: Problem, device_of_op: IntArray, peak_bytes: Sequence[int]
) -> Sequence[int]:
    """The numbers of shards, ascending, with which a placement may fit in order.

    Args:
      problem: an unsplit step.
      device_of_op: i4[N] a placement that doesn't fit.
      peak_bytes: i8[D] what each device would hold.
    """
    over = np.flatnonzero(np.array(peak_bytes) > problem.usable_bytes()).tolist()
    least = 0
    for device in over:
        kept = _kept_bytes(problem, device_of_op, device)
        count = _least_count(problem, kept, device, float(peak_bytes[device]))
        if count is None:
            return ()
        least = max(least, count)
    return [count for count in COUNTS if count >= least]


def _kept_bytes(problem: Problem, device_of_op: IntArray, device: int) -> tuple[float, float]:
    """What a device holds however many shards there are: variables, and a gradient of each."""
    graph, here = problem.graph, device_of_op == device
    is_update = np.array([kind.startswith(_UPDATES) for kind in graph.op_types]) & here
    largest = np.zeros(graph.num_ops)  # thing that an op reads
    np.maximum.at(largest, graph.use_op, graph.tensor_bytes[graph.use_tensor])
    return float(graph.op_persistent_bytes[here].sum()), float(largest[is_update].sum())


def _least_count(
    problem: Problem, kept: tuple[float, float], device: int, peak_bytes: float
) -> int | None:
    """The least number that would fit; None where it is no training step, or none would.

    Variables stay, and so does a gradient of each, into which all shards are added; the rest is
    taken to shrink with the shard.
    """
    variables, gradients = kept
    if is_split(problem) or not gradients:
        return None
    usable = min(float(problem.usable_bytes()[device]), peak_bytes)
    rest = peak_bytes - variables
    return next((count for count in COUNTS if variables + gradients + rest / count <= usable), None)
