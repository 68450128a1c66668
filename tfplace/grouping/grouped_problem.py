"""A problem as the grouped policies see it: groups, and where each may lie."""

import dataclasses

import numpy as np

from graphs.errors import ConstraintError
from graphs.op_graph import IntArray
from graphs.problem import Grouping, Problem
from tfplace.grouping.coarsen import coarsen, colocrl_grouping
from tfplace.grouping.quotient import BoolArray, group_allowed


@dataclasses.dataclass(frozen=True)
class GroupedProblem:
    """A problem and a partition of its ops.

    Attributes:
      problem: N ops, D devices.
      grouping: G groups.
      allowed: bool[G, D], at least one device per group.
    """

    problem: Problem
    grouping: Grouping
    allowed: BoolArray

    @property
    def has_choice(self) -> bool:
        """Whether any group may lie on more than one device."""
        return bool((self.allowed.sum(axis=1) > 1).any())

    def device_of_op(self, devices: IntArray) -> IntArray:
        """Placements i4[B, N] of devices i4[B, G]."""
        return np.ascontiguousarray(devices[:, self.grouping.group_of_op], dtype=np.int32)

    def device_of_group(self, device_of_op: IntArray) -> IntArray:
        """Devices i4[G] of a placement i4[N] whose borders no group crosses."""
        _, first = np.unique(self.grouping.group_of_op, return_index=True)
        return device_of_op[first].astype(np.int32)


def grouped_problem(
    problem: Problem, config: "GroupingConfig", seed: int, placement: IntArray | None = None
) -> GroupedProblem:
    """Groups the ops as `config` says.

    Args:
      problem: N ops.
      seed: of the minimum cuts.
      placement: i4[N] a legal placement that the groups are to be able to express, or None.

    Raises:
      ValueError: the method is unknown.
      ConstraintError: an op may lie nowhere.
    """
    if config.method == "minimum_cut":
        grouping = coarsen(problem, config.max_groups, seed, config.imbalance, placement=placement)
    elif config.method == "colocation":
        grouping = colocrl_grouping(problem, placement)
        if grouping.num_groups > config.max_groups:
            grouping = coarsen(
                problem, config.max_groups, seed, config.imbalance, grouping, placement
            )
    else:
        raise ValueError(
            f"grouping {problem.num_ops} ops: method {config.method!r} is unknown; "
            "use 'minimum_cut' or 'colocation'"
        )
    allowed = group_allowed(problem.allowed(), grouping)
    nowhere = np.flatnonzero(~allowed.any(axis=1))
    if len(nowhere):
        op = int(np.flatnonzero(grouping.group_of_op == nowhere[0])[0])
        raise ConstraintError(
            f"grouping {problem.num_ops} ops: {problem.graph.op_names[op]} "
            f"({problem.graph.op_types[op]}) may lie on no device; its kernels, pin and "
            "colocation group have to leave one of "
            f"{', '.join(problem.device_names)}; loosen a --pin or choose another cluster"
        )
    return GroupedProblem(problem, grouping, allowed)


@dataclasses.dataclass(frozen=True)
class GroupingConfig:
    """How ops become groups.

    Attributes:
      method: "minimum_cut" (coarsen.py), or "colocation": ColocRL's rule, and minimum cuts where
        that leaves more than max_groups.
      max_groups: count, 1 to N. tfplace's choice: local search over 32 to 128 groups of RNNLM,
        NMT and Inception-V3 came to within 2 % of each other's step times, except NMT on four
        devices; a policy learns fewer faster.
      imbalance: share of the mean group's seconds, 0 to 10. tfplace's choice.
    """

    method: str = "minimum_cut"
    max_groups: int = 64
    imbalance: float = 0.1
