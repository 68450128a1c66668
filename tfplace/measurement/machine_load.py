"""How much of this machine other processes use while a measurement runs.

Step times alone don't tell a busy machine from a slow placement; the kernel's clocks do.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

_PROC = Path("/proc")
_IDLE_FIELDS = (3, 4)  # idle, iowait; guest time (8, 9) is part of user time
_NUM_FIELDS = 8
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class CpuClocks:
    """A reading of the kernel's clocks.

    Attributes:
      all_seconds: CPU time of the machine's cores, idle time included.
      busy_seconds: what of it was spent on any work.
      own_seconds: what of it our processes took.
    """

    all_seconds: float
    busy_seconds: float
    own_seconds: float


def read_clocks(process_ids: Sequence[int], proc: Path = _PROC) -> CpuClocks | None:
    """Reads /proc/stat and the processes' own; None where the kernel does not tell.

    Args:
      process_ids: ours; one that has ended counts nothing.
      proc: where the kernel's files are.
    """
    try:
        line = (proc / "stat").read_text(encoding="ascii").splitlines()[0]
        ticks = [int(field) for field in line.split()[1 : 1 + _NUM_FIELDS]]
    except (OSError, ValueError, IndexError):
        return None
    idle = sum(ticks[field] for field in _IDLE_FIELDS)
    own = sum(_process_ticks(proc / str(pid) / "stat") for pid in process_ids)
    return CpuClocks(*(t / _TICKS_PER_SECOND for t in (sum(ticks), sum(ticks) - idle, own)))


class LoadMeter:
    """Sums up what others use over pieces of a measurement; our processes may change between."""

    def __init__(self) -> None:
        self._processes: Sequence[int] = ()
        self._last: CpuClocks | None = None
        self._all_seconds = 0.0
        self._others_seconds = 0.0

    def read(self, process_ids: Sequence[int]) -> None:
        """Counts what happened since the last reading, if our processes are still the same."""
        now = read_clocks(process_ids)
        if now and self._last and list(process_ids) == list(self._processes):
            self._all_seconds += now.all_seconds - self._last.all_seconds
            self._others_seconds += _others_seconds(self._last, now)
        self._processes, self._last = process_ids, now

    @property
    def background_share(self) -> float | None:
        """Share of the machine's CPU time that went to others; None where it is not known."""
        if self._all_seconds <= 0.0:
            return None
        # The clocks tick in hundredths of a second: a little more or less than there is.
        return min(1.0, max(0.0, self._others_seconds / self._all_seconds))


def _others_seconds(before: CpuClocks, after: CpuClocks) -> float:
    busy = after.busy_seconds - before.busy_seconds
    return busy - (after.own_seconds - before.own_seconds)


def _process_ticks(stat: Path) -> int:
    """User and system time of /proc/PID/stat, whose second field may hold spaces."""
    try:
        fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
