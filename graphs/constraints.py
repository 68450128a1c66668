"""Applies a user's constraints: ops pinned to devices, and ops that must not be split."""

import re
from collections.abc import Sequence

import numpy as np

from graphs.building.colocation import with_pairs
from graphs.counted import counted
from graphs.devices_asked import named_device
from graphs.errors import ConstraintError, UsageError
from graphs.host.did_you_mean import nearest
from graphs.host.time_limit import OutOfTimeError, time_limit
from graphs.op_graph import IntArray
from graphs.problem import Problem

MAX_NAMED = 3
MATCHING_SECONDS = 20.0
"""Longest that matching may take of this process's time. An expression that isn't hostile takes
0.1 s for 100,000 names."""


def pinned_devices(
    pins: Sequence[str], op_names: Sequence[str], device_names: Sequence[str]
) -> IntArray:
    """i4[N]: the device of each op that a pin matches, -1 elsewhere.

    Args:
      pins: "REGEX=DEVICE"; REGEX is searched in the op's name.
      op_names: [N].
      device_names: [D]; DEVICE may be "GPU:1", "/gpu:1", "/device:GPU:1" or the full name.

    Raises:
      UsageError: a pin has no device, its regular expression is wrong or matches no op, or the
        cluster lacks the device.
      ConstraintError: two pins disagree.
    """
    pinned = np.full(len(op_names), -1, dtype=np.int32)
    for pin in pins:
        pattern, separator, device = pin.rpartition("=")
        if not separator or not pattern:
            raise UsageError(f"reading --pin={pin}: wanted REGEX=DEVICE, as in '.*lstm.*=GPU:1'")
        matches = _matches(pattern, f"--pin={pin}", op_names)
        try:
            index = named_device(device, device_names)
        except LookupError as error:
            raise UsageError(f"applying --pin={pin}: {error}") from None
        for op in matches:
            if pinned[op] not in (-1, index):
                raise ConstraintError(
                    f"applying --pin={pin}: op {op_names[op]!r} is pinned to "
                    f"{device_names[pinned[op]]} by another --pin; make the expressions disjoint"
                )
            pinned[op] = index
    return pinned


def joined_by_user(
    no_split: Sequence[str], op_names: Sequence[str], colocation_group: IntArray
) -> IntArray:
    """i4[N]: the colocation groups with the ops of each `--no_split` expression joined."""
    first: list[int] = []
    second: list[int] = []
    for pattern in no_split:
        matches = _matches(pattern, f"--no_split={pattern}", op_names)
        first += [matches[0]] * (len(matches) - 1)
        second += matches[1:]
    pairs = np.array([first, second], dtype=np.int32)
    return with_pairs(colocation_group, pairs[0], pairs[1])


def matched_ops(pins: Sequence[str], no_split: Sequence[str], op_names: Sequence[str]) -> list[str]:
    """A sentence about each --pin and --no_split: how many ops it matches, and the first of them.

    Args:
      pins, no_split: as for `pinned_devices` and `joined_by_user`, which have taken them.
      op_names: [N].
    """
    expressions = [(f"--pin={pin}", pin.rpartition("=")[0]) for pin in pins]
    expressions += [(f"--no_split={pattern}", pattern) for pattern in no_split]
    sentences = []
    for flag, pattern in expressions:
        matches = _matches(pattern, flag, op_names)
        ops = counted(len(matches), "op")
        sentences.append(f"{flag} matches {ops}, the first is {op_names[matches[0]]}")
    return sentences


def require_possible(
    problem: Problem, remedy: str = "change --pin, --no_split or --keep_devices, or the cluster"
) -> None:
    """Raises ConstraintError where pins, colocation and kernels leave an op no device.

    Args:
      remedy: what to do about it.
    """
    stuck = np.flatnonzero(~problem.allowed().any(axis=1))
    if not len(stuck):
        return
    op_names, colocation_group = problem.graph.op_names, problem.graph.colocation_group
    op_seconds, pinned = problem.op_seconds, problem.pinned_device
    device_names, op = problem.device_names, int(stuck[0])
    members = [op]
    if colocation_group[op] >= 0:
        members = np.flatnonzero(colocation_group == colocation_group[op]).tolist()
    reasons = []
    for member in sorted(members, key=lambda m: (pinned[m] < 0, np.isfinite(op_seconds[m]).sum())):
        finite = np.flatnonzero(np.isfinite(op_seconds[member])).tolist()
        where = ", ".join(device_names[d] for d in finite)
        kernels = f"has kernels only on {where}" if where else "has no kernel on any device"
        has_all = len(finite) == len(device_names)
        if pinned[member] >= 0:
            only = "" if has_all else f" and {kernels}"
            reasons.append(
                f"{op_names[member]!r} is pinned to {device_names[pinned[member]]}{only}"
            )
        elif not has_all:
            reasons.append(f"{op_names[member]!r} {kernels}")
        if len(reasons) == MAX_NAMED:
            break
    together = f"op {op_names[op]!r} has no device"
    if len(members) > 1:
        together = (
            f"{len(members)} ops that must lie together, the colocation group of "
            f"{op_names[members[0]]!r}, have no common device"
        )
    raise ConstraintError(
        f"combining pins, colocation and kernels: {together}: {'; '.join(reasons)}; {remedy}"
    )


def _matches(pattern: str, flag: str, op_names: Sequence[str]) -> list[int]:
    """The ops whose names a regular expression of the user matches; at least one."""
    try:
        search = re.compile(pattern).search
        with time_limit(MATCHING_SECONDS):
            matches = [i for i, name in enumerate(op_names) if search(name)]
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(
            f"reading {flag}: {pattern!r} is no regular expression ({error})"
        ) from None
    except OutOfTimeError:
        raise UsageError(
            f"applying {flag}: matching {len(op_names)} ops took more than {MATCHING_SECONDS:g} s; "
            "wanted an expression that does not repeat what it repeats, as (a+)+ does"
        ) from None
    if not matches:
        raise UsageError(f"applying {flag}: no op's name matches{nearest(pattern, op_names)}")
    return matches
