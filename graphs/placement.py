"""A device for every op, and what such a placement is worth."""

import dataclasses

from graphs.op_graph import IntArray


@dataclasses.dataclass(frozen=True)
class Grouping:
    """A partition of the ops: what a policy decides about as one.

    Attributes:
      group_of_op: i4[N], values 0..num_groups-1, every value taken.
      num_groups: how many groups there are.
    """

    group_of_op: IntArray
    num_groups: int


@dataclasses.dataclass(frozen=True)
class Placement:
    """A device for every op.

    Attributes:
      device_of_op: i4[N] indices into the cluster's devices.
    """

    device_of_op: IntArray


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What a placement costs.

    Attributes:
      step_seconds: time of one training run.
      peak_bytes: i8[D] or empty where it is not known.
      source: "simulated" or "measured".
    """

    step_seconds: float
    peak_bytes: tuple[int, ...]
    source: str


@dataclasses.dataclass(frozen=True)
class Infeasible:
    """Why a placement can't run: a value, not an exception.

    Attributes:
      reason: "memory", "no_kernel", "colocation", "pin", "timeout", "crash" or "error".
      message: one sentence for a person.
      peak_bytes: i8[D] or empty where it is not known.
      step_seconds: what the step would take if it ran, where that is known; else inf.
    """

    reason: str
    message: str
    peak_bytes: tuple[int, ...] = ()
    step_seconds: float = float("inf")


Outcome = Measurement | Infeasible
