"""The linear program of the network bound (network_bound.py), for one site.

All seconds are in shares of a bound that there is, so that its numbers lie around 1.
"""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from graphs.op_graph import FloatArray
from tfplace.bounds.barriers import Barriers
from tfplace.bounds.step_roles import StepRoles
from tfplace.grouping.copies import WHOLE
from tfplace.grouping.quotient import BoolArray

MOST_TIMES = 8.0
"""The new bound is sought up to so many times the one known so far."""
Cell = tuple[int, int]
"""The last barrier before something, and the first after it."""


@dataclasses.dataclass(frozen=True)
class SiteStep:
    """A step and a site A.

    Attributes:
      barriers: of the step.
      families: what goes from A to other devices, if its users lie there.
      cut: the family of the parts of the batch, whose maker lies on A.
      cost: f8[R] what each role takes of all devices together.
      soonest: f8[R] when the first op of a role is done at least.
      may_stay, may_go: bool[R] whether a role may lie on A, and on other devices.
      given: what A gives of what all devices together do in one.
      sending: f8[F] how long each family holds A's way out.
    """

    barriers: Barriers
    families: "Sequence[Family]"
    cut: "Family"
    cost: FloatArray
    soonest: FloatArray
    may_stay: BoolArray
    may_go: BoolArray
    given: float
    sending: FloatArray


def least_end(step: SiteStep) -> float:
    """When the step ends at least."""
    program = _Program(step)
    program.add_stages()
    return min(program.rows.least_of(program.passed[-1], np.array(program.most)), MOST_TIMES)


class _Program:
    """Variables and rows.

    Attributes:
      rows: what holds.
      most: the greatest value of each variable.
      passed: the variables t_1 .. t_K+1.
    """

    def __init__(self, step: SiteStep):
        self.rows, self.most = Rows(), list[float]()
        self._step = step
        self.passed = [self._variable(MOST_TIMES) for _ in range(step.barriers.count + 1)]
        roles = {role for family in step.families for role in (family.maker, *family.users)}
        self._there = {  # the share of each role on B
            role: self._variable(float(step.may_go[role] and role != step.cut.maker))
            for role in sorted(roles)
        }
        for role in roles - {step.cut.maker}:
            if not step.may_stay[role]:
                self.rows.add([(self._there[role], 1.0)], 1.0)

    def add_stages(self) -> None:
        """Adds what holds between each two barriers."""
        work, moved, sent = *self._work(), self._sent()
        step, end = self._step, len(self.passed)
        for first in range(end):
            for last in range(first + 1, end + 1):
                took = [(self.passed[last - 1], 1.0)]
                took += [(self.passed[first - 1], -1.0)] if first else []
                between = [c for c in work if first <= c[0] and c[1] <= last]
                there = [(moved[cell], 1.0) for cell in between]
                total = sum(work[cell] for cell in between)
                self._add_share(took, there, total, step.given)
                self._add_share(took, [(each, -1.0) for each, _ in there], 0.0, 1.0 - step.given)
                sends = [(v, -1.0) for c, v in sent.items() if first <= c[0] and c[1] <= last]
                self.rows.add([*took, *sends], 0.0 if first else self._ready(last))

    def _add_share(
        self, took: list[tuple[int, float]], terms: list[tuple[int, float]], least: float, of: float
    ) -> None:
        """What some of the devices do takes their share of the machine's time."""
        if of > 0.0:
            scaled = [(variable, value / of) for variable, value in terms]
            self.rows.add([*took, *scaled], least / of)

    def _ready(self, last: int) -> float:
        """Until when nothing of the batch leaves A, where the barrier waits for that."""
        maker = self._step.cut.maker
        return float(self._step.soonest[maker]) if self._step.barriers.until[maker] <= last else 0.0

    def _work(self) -> tuple[dict[Cell, float], dict[Cell, int]]:
        """{cell: the work of its roles}, {cell: the variable of how much of that is on B}."""
        step, work = self._step, defaultdict[Cell, float](float)
        known: dict[Cell, list[tuple[int, float]]] = defaultdict(list)
        free = defaultdict[Cell, float](float)
        for role in np.flatnonzero(step.cost).tolist():
            cell, cost = self._cell(role), float(step.cost[role])
            work[cell] += cost
            if role in self._there:
                known[cell].append((self._there[role], cost))
            else:  # nothing of it is sent: it lies where it does best
                free[cell] += cost
        moved = {}
        for cell, total in work.items():
            terms = [*known[cell], (self._variable(free[cell]), 1.0)]
            moved[cell] = self._sum(terms, total)
        return work, moved

    def _sent(self) -> dict[Cell, int]:
        """{cell: the variable of how long what is made after its first barrier and used before its
        last, holds A's way out}."""
        step, terms = self._step, defaultdict[Cell, list[tuple[int, float]]](list)
        most, barriers = defaultdict[Cell, float](float), self._step.barriers
        for family, seconds in zip(step.families, step.sending.tolist(), strict=True):
            after, maker = int(barriers.after[family.maker]), self._there[family.maker]
            if step.soonest[family.maker] < step.soonest[step.cut.maker]:
                continue  # it may leave A before the batch is cut
            before = None
            for until in sorted({int(barriers.until[user]) for user in family.users}):
                gone = self._variable(1.0)
                for user in family.users:
                    if barriers.until[user] == until:
                        self.rows.add([(gone, 1.0), (self._there[user], -1.0), (maker, 1.0)], 0.0)
                cell = after, until
                terms[cell].append((gone, seconds))
                if before is not None:
                    self.rows.add([(gone, 1.0), (before, -1.0)], 0.0)
                    terms[cell].append((before, -seconds))
                most[cell] += seconds
                before = gone
        return {cell: self._sum(each, most[cell]) for cell, each in terms.items()}

    def _cell(self, role: int) -> Cell:
        barriers = self._step.barriers
        return int(barriers.after[role]), int(barriers.until[role])

    def _variable(self, most: float) -> int:
        self.most.append(most)
        return len(self.most) - 1

    def _sum(self, terms: Sequence[tuple[int, float]], most: float) -> int:
        """A variable that is the sum of others."""
        total = self._variable(most * (1.0 + 1e-9))
        self.rows.add([(total, 1.0), *((each, -value) for each, value in terms)], 0.0)
        self.rows.add([(total, -1.0), *terms], 0.0)
        return total


class Rows:
    """Inequalities: a sum of coefficients times variables is at least a number."""

    def __init__(self) -> None:
        self._row: list[int] = []
        self._column: list[int] = []
        self._value: list[float] = []
        self._least: list[float] = []

    def add(self, terms: Iterable[tuple[int, float]], least: float) -> None:
        """Adds one; a variable may come several times."""
        row = len(self._least)
        for column, value in terms:
            self._row.append(row)
            self._column.append(column)
            self._value.append(value)
        self._least.append(least)

    def least_of(self, variable: int, most: FloatArray) -> float:
        """What a variable is at least, where each lies between 0 and `most`; 0.0 if none is found.

        For any prices p >= 0 of the rows A x >= b, a point that obeys them has
        x_v >= p b + sum over j of min(0, (e_v - p A)_j) most_j. HiGHS only proposes the prices.
        """
        matrix = csr_matrix((self._value, (self._row, self._column)), (len(self._least), len(most)))
        least, goal = np.array(self._least), np.zeros(len(most))
        goal[variable] = 1.0
        bounds = np.stack([np.zeros(len(most)), most], axis=1)
        solved = linprog(goal, A_ub=-matrix, b_ub=-least, bounds=bounds, method="highs-ipm")
        if solved.x is None:
            return 0.0
        prices = np.maximum(-solved.ineqlin.marginals, 0.0)
        reduced = goal - matrix.T @ prices
        return float(prices @ least + np.minimum(reduced, 0.0) @ most)


@dataclasses.dataclass(frozen=True)
class Family:
    """A whole tensor, or M tensors, one of each shard, which only its own copies use.

    Attributes:
      maker: the role that makes them: a copy each, or a whole op all of them.
      users: the roles that use them.
      num_bytes: of all of them together, at least.
      is_cut: whether a whole op makes one for each shard.
    """

    maker: int
    users: tuple[int, ...]
    num_bytes: int
    is_cut: bool


def families_of(roles: StepRoles, least_bytes: float) -> list[Family]:
    """Families of at least so many bytes together; roles that are left out use nothing."""
    graph, shard = roles.step.graph, roles.shard
    users_of = _users(roles, graph.tensor_bytes * roles.num_shards >= least_bytes)
    found: dict[tuple[int, int, tuple[int, ...], bool], list[int]] = defaultdict(list)
    for tensor, users in users_of:
        op = int(graph.tensor_producer[tensor])
        maker = int(roles.role_of_op[op])
        of_shard = {int(shard[user]) for user in users}
        is_cut = shard[op] == WHOLE and len(of_shard) == 1 and WHOLE not in of_shard
        if shard[op] != WHOLE:
            users = [user for user in users if shard[user] == shard[op]]
        using = tuple(sorted({int(roles.role_of_op[user]) for user in users}))
        if maker < 0 or not using:
            continue
        # The parts that one op cuts differ by their output; all else by what it is.
        output = -1 if is_cut else int(graph.tensor_output[tensor])
        found[maker, output, using, is_cut].append(tensor)
    families = []
    for (maker, _, using, is_cut), tensors in found.items():
        is_of_all = is_cut or roles.is_copy[maker]
        if len(tensors) == (roles.num_shards if is_of_all else 1):
            num_bytes = int(graph.tensor_bytes[tensors].min()) * len(tensors)
            if num_bytes >= least_bytes:
                families.append(Family(maker, using, num_bytes, is_cut))
    return families


def _users(roles: StepRoles, counts: BoolArray) -> Iterator[tuple[int, list[int]]]:
    """Each tensor that counts, with the ops that use it and have a role."""
    graph = roles.step.graph
    fits = counts[graph.use_tensor] & (roles.role_of_op[graph.use_op] >= 0)
    tensors, users = graph.use_tensor[fits], graph.use_op[fits].tolist()
    first = np.flatnonzero(np.diff(tensors, prepend=-1)).tolist()
    for start, end in itertools.pairwise([*first, len(users)]):
        yield int(tensors[start]), users[start:end]
