"""How much of a cluster a calibration measures, and what it takes to be like what it measured."""

import dataclasses
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from graphs.cluster import Cluster
from tfplace.measurement.calibration.contention import COPIES
from tfplace.measurement.calibration.link_figures import BUSY_COUNTS
from tfplace.measurement.calibration.transfer_work import NamePair, kind_of_pair

Measured = TypeVar("Measured", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Effort:
    """What is measured.

    Attributes:
      link_sizes: bytes that go to and fro over a link; empty: as the number of links allows.
      busy_counts: {bytes: transfers beside products}; see `link_figures`.
      copies: of the probes of contention.
      one_of_a_kind: whether equal devices, and links between such, are measured once.
      most_seconds: the longest that all of it may take.
      is_given_up: whether it ends as soon as others are seen to use the machine.
    """

    link_sizes: Sequence[int] = ()
    busy_counts: Mapping[int, int] = dataclasses.field(default_factory=lambda: BUSY_COUNTS)
    copies: int = COPIES
    one_of_a_kind: bool = False
    most_seconds: float = math.inf
    is_given_up: bool = False

    def devices(self, cluster: Cluster) -> Mapping[str, str]:
        """{device: the measured one that it is like}."""
        kinds = {d.name: (d.type, d.cores, d.memory_bytes) for d in cluster.devices}
        return self._first_of_kind(kinds)

    def links(self, cluster: Cluster, pairs: Iterable[NamePair]) -> Mapping[NamePair, NamePair]:
        """{link: the measured one that it is like}; there and back may differ where ends do."""
        kinds = self.devices(cluster)
        ends = {pair: (kinds[pair[0]], kinds[pair[1]]) for pair in pairs}
        return self._first_of_kind({p: (kind_of_pair(cluster, p), ends[p]) for p in ends})

    def busy_links(
        self, cluster: Cluster, pairs: Iterable[NamePair]
    ) -> Mapping[NamePair, NamePair]:
        """The same for the work at both ends, which is alike both ways."""
        return self._first_of_kind({pair: kind_of_pair(cluster, pair) for pair in pairs})

    def _first_of_kind(self, kinds: Mapping[Measured, Hashable]) -> Mapping[Measured, Measured]:
        first: dict[Hashable, Measured] = {}
        for each, kind in kinds.items():
            first.setdefault(kind if self.one_of_a_kind else each, each)
        return {each: first[kind if self.one_of_a_kind else each] for each, kind in kinds.items()}


FULL = Effort()
SHORT = Effort(
    link_sizes=(64, 1 << 16, 1 << 20, 1 << 23),
    busy_counts={64: 33, 1 << 18: 17, 1 << 20: 9},
    copies=1,
    one_of_a_kind=True,
    most_seconds=25.0,
    is_given_up=True,
)
"""For the first run on a machine: about a quarter of the probes."""
