"""How long it takes to read and price a step in another number of shards, known before."""

from __future__ import annotations

TOO_LONG = "not tried: reading and pricing it would have taken too much of the budget"


class ReadingTime:
    """What reading a step will take, estimated from the last one that was read."""

    def __init__(self, unsplit_seconds: float) -> None:
        """Knows the unsplit step only.

        Args:
          unsplit_seconds: what reading and pricing the step as it is took.
        """
        self._shards, self._seconds = 1, unsplit_seconds
        self._copied = 1.0

    @property
    def seconds(self) -> float:
        """What the last reading took."""
        return self._seconds

    def leave_whole(self, share: float) -> None:
        """Told that so many of the ops, a share [0, 1], are read once in any number of shards."""
        self._copied = 1.0 - share

    def note(self, shards: int, seconds: float) -> None:
        """Told what reading so many shards took."""
        self._shards, self._seconds = shards, seconds

    def too_long(self, shards: int, left: float) -> str:
        """Why so many shards are not read where `left` seconds may be used; "" if they may."""
        if self._seconds * self._times(shards) / self._times(self._shards) <= left:
            return ""
        return TOO_LONG

    def _times(self, shards: int) -> float:
        return 1.0 + (_times(shards) - 1.0) * self._copied


def _times(shards: int) -> float:
    """How many times as long as the unsplit step a step takes to be read and priced.

    Seen: transformer 1.8, 2.1, 2.7 times with 2, 4, 8 shards, and 3.5 and 6 with 32 and 64; nmt
    with four layers 2.4 and 4.5 with 2 and 8: many shards are alike, and are read once.
    """
    return 1.0 if shards == 1 else 1.5 + 0.25 * min(shards, 16) + 0.08 * max(shards - 16, 0)
