"""How much of this machine other processes use while a measurement runs.

Step times alone don't tell a busy machine from a slow placement; the kernel's clocks do.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Sequence

import psutil

MOST_LOOKS, OWN_SHARE = 24, 0.1


@dataclasses.dataclass(frozen=True)
class CpuClocks:
    """A reading of the kernel's clocks.

    Attributes:
      all_seconds: CPU time of the machine's cores, idle time included.
      busy_seconds: what of it was spent on any work of this machine's programs. What a hypervisor
        took ("steal") is not: it grows with our own waking threads, to a quarter of the time while
        small transfers are timed on a machine where nothing else runs.
      own_seconds: what of it our processes took.
    """

    all_seconds: float
    busy_seconds: float
    own_seconds: float


def read_clocks(process_ids: Sequence[int]) -> CpuClocks:
    """Reads the clocks of the machine and of our processes; one that has ended counts nothing."""
    machine = psutil.cpu_times()
    total = sum(machine) - machine.guest - machine.guest_nice  # these are in user and nice, too
    own = 0.0
    for process_id in process_ids:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = psutil.Process(process_id).cpu_times()
            own += times.user + times.system
    steal = getattr(machine, "steal", 0.0)  # Linux only
    return CpuClocks(total, total - machine.idle - machine.iowait - steal, own)


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
        if self._last and list(process_ids) == list(self._processes):
            self._all_seconds += now.all_seconds - self._last.all_seconds
            self._others_seconds += now.busy_seconds - self._last.busy_seconds
            self._others_seconds -= now.own_seconds - self._last.own_seconds
        self._processes, self._last = process_ids, now

    @property
    def background_share(self) -> float | None:
        """Share of the machine's CPU time that went to others; None where it is not known."""
        if self._all_seconds <= 0.0:
            return None
        # The clocks tick in hundredths of a second: a little more or less than there is.
        return min(1.0, max(0.0, self._others_seconds / self._all_seconds))


def share_of_others(seconds: float) -> float | None:
    """What other processes take of this machine's CPU time while this one sleeps so long.

    Our children, which start TensorFlow meanwhile, are no others: it looks again until they rest.
    """
    for _ in range(MOST_LOOKS):
        ours = [os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))]
        meter, began = LoadMeter(), read_clocks(ours).own_seconds
        meter.read(ours)
        time.sleep(seconds)
        meter.read(ours)
        if read_clocks(ours).own_seconds - began < OWN_SHARE * seconds:
            break
    return meter.background_share
