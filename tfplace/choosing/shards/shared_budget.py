"""One budget for the searches of several numbers of shards."""

import dataclasses
import time

from tfplace.choosing.find_placement import Beside
from tfplace.preparing.options import OptimizeOptions
from tfplace.search.trial_log import SearchResult


class SharedBudget:
    """What all searches together may take, and what they have taken."""

    def __init__(self, options: OptimizeOptions) -> None:
        """The clock runs from here on."""
        self._options = options
        self._began = time.monotonic()
        self._searches: list[tuple[float, SearchResult]] = []  # each with ShardsFound.key

    @property
    def elapsed(self) -> float:
        """Seconds, searched or not."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds; below 0 where more were used."""
        return self._options.budget_seconds - self.elapsed

    def note(self, key: float, result: SearchResult) -> None:
        """Takes a search of a number of shards, with ShardsFound.key, that is over."""
        self._searches.append((key, result))

    def part(self, limits: OptimizeOptions, share: float = 1.0) -> OptimizeOptions | None:
        """Limits of a search that gets a share of what is left; None where no seconds are.

        Args:
          limits: the options of all together, or with a part of their seconds and trials: the
            search gets no more than that part of what is left.
          share: above 0, at most 1.
        """
        whole = self._options.budget_seconds
        if self.left <= 0.0:
            return None
        seconds, trials = share * self.left * limits.budget_seconds / whole, limits.max_trials
        if trials is not None:
            used = sum(result.num_trials for _, result in self._searches)
            trials = max(int(share * (trials - used)), 1)
        return dataclasses.replace(limits, budget_seconds=seconds, max_trials=trials)

    def beside(self, reported: SearchResult) -> list[Beside]:
        """All searches but one, those of a number of shards together."""
        others = [(key, each) for key, each in self._searches if each is not reported]
        return [
            Beside(
                _name(key),
                sum(each.num_trials for own, each in others if own == key),
                sum(each.seconds for own, each in others if own == key),
            )
            for key in sorted({key for key, _ in others})
        ]


def _name(key: float) -> str:
    if key == 1.0:
        return "unsplit"
    return f"{int(key)} {'shards' if key == int(key) else 'pieces'}"


TOO_LONG = "not tried: reading and pricing it would have taken too much of the budget"


class ReadingTime:
    """What reading a step will take, estimated from the last one that was read."""

    def __init__(self, unsplit_seconds: float) -> None:
        """Knows what reading and pricing the step as it is took."""
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
    """How many times as long as the unsplit step, once its file is loaded and TensorFlow started, a
    step takes to be decided, read and priced.

    Seen for 2, 4, 8 shards: transformer 3.2, 2.6, 3.4; rnnlm 3.6, 1.9, 3.2; a Keras U-Net 4.9, 2.1,
    an encoder 5.3, 3.0; inception_v3 4.2 and 3.3 for 4 and 8. The first one decides, which is known
    for the others; many shards are alike, and are read once.
    """
    return 1.0 if shards == 1 else 3.5 + 0.25 * min(shards, 16) + 0.08 * max(shards - 16, 0)
