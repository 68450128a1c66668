"""How far a memory plan is from the least that any recomputation takes.

The bound is Checkmate's linear program (Jain et al., MLSys 2020), solved by HiGHS: node k of n, in
the order of the run, is computed for the first time in stage k, and in each stage whatever is there
may be kept and whatever is not may be computed again. Fractions of nodes may be, so that no plan
takes less. Its size grows with the square of the nodes: small ops are fused first, each piece makes
one tensor, no buffer is shared, and the plan is made for these pieces, too.

`python -m tests.tables.checkmate MODEL.pb 0.5 0.35` prints a row for each share of the peak.
"""

import dataclasses
import sys
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from graphs.loading.load_options import LoadOptions
from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tfplace.algorithms.placers.one_shot import single_devices
from tfplace.choosing.memory.fit import fitted
from tfplace.choosing.memory.rematerialize import MayChange
from tfplace.grouping.fuse import fused_problem
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.simulation.simulated import simulated


@dataclasses.dataclass(frozen=True)
class Pieces:
    """A step's pieces, in the order of the run.

    Attributes:
      seconds: f8[n] of each.
      size: f8[n] bytes of what each makes.
      reads: [n] the pieces that each reads, all before it.
      kept: bytes that are held all the time.
    """

    seconds: np.ndarray
    size: np.ndarray
    reads: Sequence[Sequence[int]]
    kept: float = 0.0

    def problem(self) -> Problem:
        """The same as a placement problem of one device."""
        ops = [
            Op(f"p{k}", float(self.seconds[k]), [f"p{j}:0" for j in reads], (int(self.size[k]),))
            for k, reads in enumerate(self.reads)
        ]
        ops[0] = dataclasses.replace(ops[0], persistent=int(self.kept))
        return build_problem(ops, Machine(1, memory=2**62, types=["GPU"]))


class _Rows:
    """Inequalities row @ x <= bound."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, float]] = []
        self._bounds: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], bound: float) -> None:
        self._entries += [(len(self._bounds), column, factor) for column, factor in terms]
        self._bounds.append(bound)

    def arrays(self, num_columns: int) -> tuple[coo_array, list[float]]:
        row, column, factor = zip(*self._entries, strict=True)
        shape = (len(self._bounds), num_columns)
        return coo_array((factor, (row, column)), shape=shape).tocsr(), self._bounds


def least_seconds(pieces: Pieces, limit: float) -> float:
    """Seconds that no plan for these pieces beats under a limit in bytes; inf where none fits."""
    n = len(pieces.seconds)
    number: dict[tuple[str, int, int, int], int] = {}

    def of(what: str, stage: int, node: int, behind: int = -1) -> int:
        return number.setdefault((what, stage, node, behind), len(number))

    rows, least = _Rows(), dict[int, float]()
    size = pieces.size / max(limit, 1.0)
    for t in range(n):
        least[of("run", t, t)] = 1.0
        held = [(of("keep", t, j), size[j]) for j in range(t)]
        freed: list[list[tuple[int, float]]] = [[] for _ in range(t + 1)]
        for k in range(t + 1):
            for j in pieces.reads[k]:  # it is there, and nothing that ran before k has freed it
                there = [(of("run", t, j), -1.0), (of("keep", t, j), -1.0)]
                rows.add([(of("run", t, k), 1.0), *there, *freed[j]], 0.0)
            held.append((of("run", t, k), size[k]))
            rows.add(held, 1.0 - pieces.kept / max(limit, 1.0))
            for j in {*pieces.reads[k], k}:
                free = of("free", t, j, k)
                rows.add([(free, 1.0), (of("run", t, k), -1.0)], 0.0)
                freed[j].append((free, 1.0))
                held.append((free, -size[j]))
        for j in range(t + 1):  # only what is there is freed, or kept for the next stage
            there = [(of("run", t, j), -1.0)] + [(of("keep", t, j), -1.0)] * (j < t)
            kept = [(of("keep", t + 1, j), 1.0)] * (t + 1 < n)
            rows.add([*freed[j], *kept, *there], 0.0)
    costs = np.zeros(len(number))
    for key, column in number.items():
        if key[0] == "run":
            costs[column] = pieces.seconds[key[2]]
    matrix, bounds = rows.arrays(len(number))
    ranges = [(least.get(column, 0.0), 1.0) for column in range(len(number))]
    found = linprog(costs, matrix, bounds, bounds=ranges, method="highs")
    return float(found.fun) if found.status == 0 else np.inf


def planned_seconds(pieces: Pieces, limit: float) -> float:
    """What the plan takes that `optimize` would make for the pieces; inf where it finds none."""
    problem = dataclasses.replace(
        pieces.problem(), device_memory_bytes=np.array([limit], dtype=np.int64)
    )
    every = np.ones(problem.num_ops, dtype=bool)
    may = MayChange(every, every, np.zeros(problem.num_ops, dtype=np.int32))
    found = fitted(problem, np.zeros(problem.num_ops, dtype=np.int32), may)
    return np.inf if found is None else found.step_seconds


def peak(pieces: Pieces) -> int:
    """What the pieces hold without a plan, in bytes."""
    problem = pieces.problem()
    step = simulated(problem, np.zeros(problem.num_ops, dtype=np.int32))
    return int(step.schedule.peak_bytes[0])


def pieces_of(problem: Problem) -> Pieces:
    """A step on one device, in the order in which its ops run; each makes one tensor of all."""
    graph = problem.graph
    schedule = min(
        (simulated(problem, each).known_schedule() for each in single_devices(problem)),
        key=lambda each: each.makespan,
    )
    order = np.lexsort((schedule.op_end, schedule.op_start))
    place = np.empty(graph.num_ops, dtype=int)
    place[order] = np.arange(graph.num_ops)
    source, target = place[graph.tensor_producer[graph.use_tensor]], place[graph.use_op]
    assert np.all(source < target)
    used = np.unique(graph.use_tensor)
    size = np.bincount(place[graph.tensor_producer[used]], graph.tensor_alloc_bytes[used])
    size.resize(graph.num_ops)
    reads = [sorted({*source[target == k].tolist()}) for k in range(graph.num_ops)]
    seconds = problem.op_seconds[np.arange(graph.num_ops), schedule.device_of_op][order]
    return Pieces(seconds, size, reads, float(graph.op_persistent_bytes.sum()))


def main(arguments: Sequence[str]) -> None:
    """Prints, for each share of the peak, what the plan and the bound take of the step's time."""
    model, *shares = arguments
    prepared = prepare(ProblemOptions(model, LoadOptions(), cluster="k80x2"), trace=False)
    pieces = pieces_of(fused_problem(prepared.problem).problem)
    whole, most = float(pieces.seconds.sum()), peak(pieces)
    print(f"{model}: {len(pieces.seconds)} pieces hold {most / 2**20:.0f} MiB")
    for share in map(float, shares):
        plan, bound = (find(pieces, share * most) for find in (planned_seconds, least_seconds))
        print(
            f"{share:.2f}  plan {plan / whole:.3f}  bound {bound / whole:.3f}  {plan / bound:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
