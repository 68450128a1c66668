"""The travel bound: work that no device can do in time is spread, and what it shares travels.

docs/bounds.md has the argument, whose letters are used here.
"""

import dataclasses

import numpy as np

from graphs.op_graph import FloatArray
from graphs.problem import Problem
from tfplace.bounds.relaxation import DeviceClasses, least_hold, one_at_a_time
from tfplace.grouping.quotient import BoolArray

HALVINGS = 60
"""Of the interval in which the least T lies."""


@dataclasses.dataclass(frozen=True)
class Sharing:
    """Which tensors and ops make fans; of a problem in which an op may stand for several copies.

    Attributes:
      fans_out: bool[T] one tensor with several users, whatever it and they stand for.
      used_once: bool[T] each tensor that it stands for has one user.
      is_one: bool[N] ops that stand for themselves.
    """

    fans_out: BoolArray
    used_once: BoolArray
    is_one: BoolArray


@dataclasses.dataclass(frozen=True)
class Fans:
    """F sets of ops around what they share.

    Attributes:
      work: f8[F] device seconds of a set.
      outside: f8[F] seconds of the step in which none of them runs, a + b.
      hold: f8[F] seconds for which each transfer holds its channels, s.
    """

    work: FloatArray
    outside: FloatArray
    hold: FloatArray


@dataclasses.dataclass(frozen=True)
class Ways:
    """What transfers go through.

    Attributes:
      num_devices: D.
      held: channels that each transfer holds at least, h.
      num_channels: of all transfers, C.
      is_single: whether a device sends one tensor at a time, and receives one at a time.
    """

    num_devices: int
    held: int
    num_channels: int
    is_single: bool


def sharing_of(problem: Problem) -> Sharing:
    """Of a problem whose ops all stand for themselves."""
    graph = problem.graph
    users = np.bincount(graph.use_tensor, minlength=graph.num_tensors)
    return Sharing(users > 1, users == 1, np.ones(problem.num_ops, dtype=bool))


def travel_bound(
    classes: DeviceClasses,
    problem: Problem,
    sharing: Sharing,
    head: FloatArray,
    tail: FloatArray,
    is_direct: bool = True,
) -> float:
    """The bound in seconds.

    Args:
      classes: seconds of ops, those of all copies where an op stands for several.
      head: f8[N] least seconds before an op's start.
      tail: f8[N] least seconds after an op's end.
      is_direct: whether what is shared goes straight to all that share it; else it may be handed on
        from device to device.
    """
    ways = _ways(problem)
    ways = dataclasses.replace(ways, is_single=ways.is_single and is_direct)
    return least_seconds(fans_of(classes, problem, sharing, head, tail), ways)


def fans_of(
    classes: DeviceClasses, problem: Problem, sharing: Sharing, head: FloatArray, tail: FloatArray
) -> Fans:
    """All fans out, then all fans in, but those whose transfers take no time; see travel_bound."""
    graph = problem.graph
    tensor, user = graph.use_tensor, graph.use_op
    maker = graph.tensor_producer[tensor]
    out = sharing.fans_out[tensor]
    into = sharing.used_once[tensor] & sharing.is_one[user] & ~out
    fan = np.concatenate([tensor[out], graph.num_tensors + user[into]]).astype(np.int64)
    member = np.concatenate([user[out], maker[into]])
    hold = np.full(graph.num_tensors + graph.num_ops, np.inf)
    np.minimum.at(hold, fan, least_hold(problem)[np.concatenate([tensor[out], tensor[into]])])
    # Sums and least values over the members of each fan; a member counts once.
    own = (classes.seconds / classes.slots).min(axis=1)
    pairs = np.unique(np.stack([fan, member], axis=1), axis=0)
    fan, member = pairs[:, 0], pairs[:, 1]
    work = np.bincount(fan, own[member], minlength=len(hold)).astype(np.float64)
    outside = np.zeros(len(hold))
    for seconds in (head, tail):
        least = np.full(len(hold), np.inf)
        np.minimum.at(least, fan, seconds[member])
        outside += np.where(np.isfinite(least), least, 0.0)
    counts = (work > 0.0) & np.isfinite(hold) & (hold > 0.0)
    return Fans(work[counts], outside[counts], hold[counts])


def least_seconds(fans: Fans, ways: Ways) -> float:
    """The least T of the module's formula, from below."""
    if not len(fans.work) or not ways.held:
        return 0.0

    def is_enough(seconds: float) -> bool:
        inside = np.maximum(seconds - fans.outside, 1e-300)
        with np.errstate(over="ignore"):  # work that never ends inside asks for inf devices
            devices = np.ceil(fans.work / inside * (1.0 - 1e-9))
        sent = (devices - 1.0).clip(min=0.0) * fans.hold
        if devices.max() > ways.num_devices or (ways.is_single and sent.max() > seconds):
            return False
        return bool(sent.sum() * ways.held <= ways.num_channels * seconds)

    low, high = 0.0, float((fans.work + fans.outside).max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return low


def _ways(problem: Problem) -> Ways:
    pairs = np.sort(problem.link_channels[~np.eye(problem.num_devices, dtype=bool)], axis=1)
    if not len(pairs):
        return Ways(problem.num_devices, 0, 0, is_single=False)
    held = (pairs >= 0).sum(axis=1) - ((pairs[:, 0] == pairs[:, 1]) & (pairs[:, 0] >= 0))
    single = all(one_at_a_time(problem, inward=inward) for inward in (False, True))
    return Ways(problem.num_devices, int(held.min()), len(np.unique(pairs[pairs >= 0])), single)
