"""What real runs of a step say of its nodes, and so of the same step in shards.

Timing the ops of a split step takes as long as reading it, or longer, and a search tries several
numbers of shards. Its copies are ops of the unsplit step on a part of the batch: what such an op
took is known, and how its price changes with its size.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray
from tfplace.preparing.node_seconds import TracedNodes

_COPY = re.compile(r"(.*)/shard_\d+")
DeviceKind = tuple[object, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class TimedStep:
    """A step whose ops were timed.

    Attributes:
      node_names: [nodes] of its flat graph.
      alone_seconds: {kind of device: f8[nodes] analytic seconds}.
      traced: {kind of device: what real runs say there}; kinds that could not be timed lack.
      seconds: what the real runs took.
    """

    node_names: Sequence[str]
    alone_seconds: Mapping[DeviceKind, FloatArray]
    traced: Mapping[DeviceKind, TracedNodes]
    seconds: float = 0.0

    def in_shards(
        self, kind: DeviceKind, node_names: Sequence[str], alone_seconds: FloatArray
    ) -> TracedNodes | None:
        """What real runs would say of the same step split; None where nothing is known.

        An op that stays whole takes as long as before. A copy takes its part of that by price, and
        the executor's share, which doesn't shrink; a part is at most all of it, where the unsplit
        op's sizes and so its price are not known. Sums, joins and cuts are new, so not known.

        Args:
          kind: of device.
          node_names: [nodes] of the split step; a copy of a/b is a/b/shard_m.
          alone_seconds: f8[nodes] their analytic seconds on such a device.
        """
        if kind not in self.traced:
            return None
        own, index = self.traced[kind], {name: i for i, name in enumerate(self.node_names)}
        found = np.array([index.get(_name_of_op(name), -1) for name in node_names])
        is_known = found >= 0
        whole = np.where(is_known, found, 0)
        is_copy = np.array([_COPY.fullmatch(name) is not None for name in node_names])
        share = _shares(alone_seconds, self.alone_seconds[kind][whole])
        share = np.where(is_copy, np.minimum(share, 1.0), 1.0)
        is_absent = is_known & own.is_absent[whole]
        fixed = np.where(is_absent, 0.0, np.minimum(own.overhead_seconds, own.seconds[whole]))
        seconds = fixed + share * (own.seconds[whole] - fixed)
        return dataclasses.replace(
            own,
            seconds=np.where(is_known, seconds, np.nan),
            is_absent=is_absent,
            place=own.place[whole],
            is_by_unsplit=True,
        )


def _name_of_op(name: str) -> str:
    copy = _COPY.fullmatch(name)
    return copy[1] if copy else name


def _shares(seconds: FloatArray, whole: FloatArray) -> FloatArray:
    """How many times as long by price; 1 where no price is known."""
    is_priced = np.isfinite(seconds) & np.isfinite(whole) & (whole > 0.0)
    return np.divide(seconds, whole, out=np.ones(len(seconds)), where=is_priced)
