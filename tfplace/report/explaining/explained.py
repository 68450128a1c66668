"""One placement's step, explained: what a report shows beside its numbers.

And what it spends its time and its links on: heaviest ops, largest transfers.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from graphs.protos import Json
from tfplace.report.explaining.waiting import (
    Causes,
    DeviceTime,
    causes_of,
    chain_shares,
    device_times,
    sentence,
    short_names,
)
from tfplace.simulation.schedule import Schedule
from tfplace.simulation.simulated import Simulated


def heaviest_ops(schedule: Schedule, count: int) -> list[int]:
    """The ops that run longest, the longest first; none that takes no time."""
    return _largest(schedule.op_end - schedule.op_start, count)


def heaviest_types(
    problem: Problem, schedule: Schedule, count: int
) -> list[tuple[str, int, float]]:
    """(op type, number of ops, seconds that they run where they lie), the most seconds first."""
    rows = problem.graph.by_type(schedule.op_end - schedule.op_start)
    return [rows[k] for k in _largest(np.array([seconds for *_, seconds in rows]), count)]


def largest_transfers(schedule: Schedule, count: int) -> list[int]:
    """Indices of the transfers of most bytes, the largest first; none of no bytes."""
    return _largest(schedule.transfers.bytes, count)


def queued_seconds(problem: Problem, schedule: Schedule) -> FloatArray:
    """f8[X]: how long each transfer waited for its link after its tensor was made."""
    moved = schedule.transfers
    return moved.start - schedule.op_end[problem.graph.tensor_producer[moved.tensor]]


def tensor_name(problem: Problem, tensor: int) -> str:
    """ "op:0", or "^op" for the control tensor."""
    graph = problem.graph
    name = str(graph.op_names[graph.tensor_producer[tensor]])
    output = int(graph.tensor_output[tensor])
    return f"^{name}" if output < 0 else f"{name}:{output}"


def _largest(values: np.ndarray, count: int) -> list[int]:
    order = np.argsort(-values, kind="stable")[:count].tolist()
    return [index for index in order if values[index] > 0]


NO_KERNEL, PINNED, TIED, CHOSEN = "no_kernel", "pinned", "tied", "chosen"
MAX_TYPES = 6


@dataclasses.dataclass(frozen=True)
class OnCpu:
    """Ops that lie on CPUs for one reason.

    Attributes:
      reason: NO_KERNEL: no GPU has a kernel for them with these dtypes. PINNED: by --pin or
        --keep_devices. TIED: they share a colocation group with one of the former. CHOSEN: a GPU
        could run them; the placement leaves them here.
      num_ops: how many ops these are.
      types: [(op type, ops)], the most frequent first, at most MAX_TYPES.
      seconds: how long they run.
      gpu_seconds: how long they would run on the fastest GPU; inf where none has kernels for all.
      example: the name of the one that runs longest.
    """

    reason: str
    num_ops: int
    types: Sequence[tuple[str, int]]
    seconds: float
    gpu_seconds: float
    example: str


def ops_on_cpu(problem: Problem, schedule: Schedule) -> list[OnCpu]:
    """The reasons, in the order above; empty where there is no GPU or nothing lies on a CPU."""
    is_gpu = np.array([kind == "GPU" for kind in problem.device_types])
    if not is_gpu.any():
        return []
    on_gpu = problem.op_seconds[:, is_gpu].min(axis=1)
    is_here = ~is_gpu[schedule.device_of_op]
    no_kernel = ~np.isfinite(on_gpu)
    pinned = problem.pinned_device >= 0
    bound = ~problem.allowed()[:, is_gpu].any(axis=1)
    # A pin to a CPU is a wish; without a kernel there is no choice, pinned or not.
    reasons = (
        (NO_KERNEL, no_kernel),
        (PINNED, pinned & ~no_kernel),
        (TIED, bound & ~pinned & ~no_kernel),
        (CHOSEN, ~bound & ~pinned & ~no_kernel),
    )
    seconds = schedule.op_end - schedule.op_start
    rows = []
    for reason, applies in reasons:
        ops = np.flatnonzero(is_here & applies)
        if len(ops):
            types = collections.Counter(str(problem.graph.op_types[op]) for op in ops.tolist())
            longest = int(ops[np.argmax(seconds[ops])])
            rows.append(
                OnCpu(
                    reason,
                    len(ops),
                    types.most_common(MAX_TYPES),
                    float(seconds[ops].sum()),
                    float(on_gpu[ops].sum()),
                    str(problem.graph.op_names[longest]),
                )
            )
    return rows


@dataclasses.dataclass(frozen=True)
class Explained:
    """A step and what there is to say of it.

    Attributes:
      placed: the placement, simulated; it has a schedule.
      causes: what each op of that schedule waited for.
      names: [D] short device names.
      times: [D] how each device spends the step, and what it waits for.
      chain: {(kind, device): seconds} of the chain of ops and transfers that ends with the step.
      on_cpu: why ops sit on a CPU.
      before: the same without its memory plan; None where it has none.
    """

    placed: Simulated
    causes: Causes
    names: Sequence[str]
    times: Sequence[DeviceTime]
    chain: Mapping[tuple[str, int], float]
    on_cpu: Sequence[OnCpu]
    before: Simulated | None = None

    @property
    def problem(self) -> Problem:
        """What was placed."""
        return self.placed.problem

    @property
    def schedule(self) -> Schedule:
        """What happens when."""
        return self.placed.known_schedule()

    def sentences(self) -> list[str]:
        """[D]: how each device spends the step, in a sentence."""
        makespan = self.schedule.makespan
        return [sentence(t, d, makespan, self.names) for d, t in enumerate(self.times)]

    def waiting(self) -> list[dict[str, Json]]:
        """[D]: the same as report.json has it."""
        full = self.problem.device_names
        return [
            {
                "device": full[device],
                "computing_seconds": time.computing_seconds,
                "waits": [
                    {"for": kind, "device": full[other] if other >= 0 else None, "seconds": seconds}
                    for (kind, other), seconds in time.waits.items()
                ],
                "sentence": text,
            }
            for device, (time, text) in enumerate(zip(self.times, self.sentences(), strict=True))
        ]


def explain(placed: Simulated, before: Simulated | None = None) -> Explained:
    """Explains the step of a placement, which is `before` without its memory plan.

    Raises:
      ValueError: it has no schedule, since an op lies where it has no kernel.
    """
    problem, schedule = placed.problem, placed.known_schedule()
    causes = causes_of(problem, schedule)
    return Explained(
        placed=placed,
        causes=causes,
        names=short_names(problem.device_names),
        times=device_times(problem, schedule, causes),
        chain=chain_shares(schedule, causes),
        on_cpu=ops_on_cpu(problem, schedule),
        before=before,
    )
