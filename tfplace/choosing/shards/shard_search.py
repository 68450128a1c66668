"""The search of `optimize --shards=auto`: numbers of shards are tried, the best is searched on.

Each number begins with a short search. Those that come close to the best get a longer one, and the
best of these all that is left: successive halving (Karnin, Koren, Somekh 2013). Reading and
pricing a step split another way takes seconds of the same budget, so how long it will take is
estimated before it is begun. The unsplit step is among them and needs no such time.
"""

import dataclasses
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from graphs.errors import TfplaceError
from tfplace.algorithms.annealing.config import LARGE_OPS
from tfplace.algorithms.learned.training.checkpoint import Checkpoint
from tfplace.algorithms.placers.legal import working_devices
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.budget import PARTS
from tfplace.choosing.baselines import SINGLE, Candidate, best_of
from tfplace.choosing.data_parallel import NAME as DATA_PARALLEL
from tfplace.choosing.data_parallel import EvenSplit
from tfplace.choosing.find_placement import Searched, find_placement
from tfplace.choosing.memory.within_memory import within_memory
from tfplace.choosing.memory_limit import at_most
from tfplace.choosing.outcomes import Found
from tfplace.choosing.scheduling.model_order import EDGES, NONE, wanted_order, with_order
from tfplace.choosing.scheduling.search_in_order import budget_beside_order, search_in_order
from tfplace.choosing.shards.background_annealing import LongSearch, Result
from tfplace.choosing.shards.in_order import (
    counts_that_may_fit,
    found_in_order,
    require_one_that_fits,
)
from tfplace.choosing.shards.kept_whole import ops_left_whole
from tfplace.choosing.shards.shard_counts import (
    NumbersFound,
    ShardsFound,
    first_count,
    next_count,
    shard_counts,
    smaller_count,
    why_not,
)
from tfplace.choosing.shards.shared_budget import TOO_LONG, ReadingTime, SharedBudget
from tfplace.choosing.shards.split_estimate import (
    least_steps,
    promising_pieces,
    seconds_to_send,
    work_of_devices,
)
from tfplace.choosing.unsplit_baselines import TriedShards, Unsplit, for_all_shards
from tfplace.interruption import interruptible
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel, places_of_shards, prepare
from tfplace.progress import Progress
from tfplace.search.search import Limits, Stage
from tfplace.search.trial_log import SearchResult
from tfplace.simulation.simulated import simulated
from tfplace.units_text import seconds_text

PROMISING = 4.0
"""One shard a device is promising if, by its work alone, its step is so many times faster than the
best unsplit one: then reading it may take more than the whole budget."""
CLOSE, MOST_CLOSE = 1.2, 2
"""Within so much of the best, a number gets a second search; so many of them at most."""
HOPEFUL = 0.9
"""Weights in pieces are tried where the least that such a step takes is so much of the best one."""
NEAR = 1.5
"""Numbers whose step takes so many times as long as the best one's get an order, too."""
CORES_IN_USE = 2
"""Reading a step takes one, and where devices are present real runs are prepared on another."""
MOST_LOOKS = 2
"""The unsplit step is searched on so many times to rule a number out before it is read."""

SERVED = "not tried: it serves batches of any size; split, it takes none smaller than its shards"


class ShardSearch:
    """One search over numbers of shards."""

    def __init__(
        self,
        prepared: PreparedModel,
        options: OptimizeOptions,
        trained: Checkpoint | None,
        progress: Progress,
        timed_later: Callable[[PreparedModel, Candidate], None] = lambda prepared, candidate: None,
    ) -> None:
        """Searches nothing yet; `timed_later` is told early what real runs will compare."""
        self._timed_later = timed_later
        self._numbers = NumbersFound()
        self._whole, self._options, self._trained = prepared, options, trained
        self._progress = progress
        self._reading = ReadingTime(prepared.reading_seconds)
        self._budget = SharedBudget(options)
        self._data_parallel: EvenSplit | None = None
        self._long: LongSearch | None = None  # of the unsplit step
        self._has_core = not prepared.is_present or len(os.sched_getaffinity(0)) > CORES_IN_USE
        self._may_stay_whole: Collection[str] = ()
        self._left_whole: Collection[str] = ()  # these, or none: the better way so far
        self._is_way_known = False

    def run(self, decided: Callable[[PreparedModel], None]) -> tuple[PreparedModel, Searched]:
        """The problem and the placements of the number that is best, of equals the fewest shards.

        Args:
          decided: called with the problem that gets the last and longest search.
        """
        numbers = self._numbers
        self._first(1, self._whole)
        for baseline in numbers.unsplit.searched.baselines:
            if baseline.name == SINGLE and math.isfinite(baseline.step_seconds):
                self._timed_later(self._whole, baseline)
        if numbers.is_interrupted or not numbers.is_any_known:
            self._long = None
        num_devices = len(working_devices(self._whole.problem))
        if num_devices > 1 and self._whole.serves_any_batch and numbers.is_any_known:
            for shards in shard_counts(num_devices):
                self._skip(shards, SERVED)
            self._try_pieces(self._pieces(num_devices))
        elif num_devices > 1:
            least = self._least_steps(shard_counts(num_devices))
            first = first_count(work_of_devices(self._whole.problem))
            # An unsplit step that can't come near is not searched any longer.
            if least.get(1, 0.0) >= PROMISING * least.get(first, math.inf):
                self._long = None
            pieces = self._pieces(num_devices)
            sent = self._least_to_send(least.get(first, 0.0)) if pieces else 0.0
            is_first = any(seconds < sent for _, seconds in pieces[:1])
            if is_first:
                self._try_pieces(pieces)
            self._try_others(first, least)
            if not is_first:
                self._try_pieces(pieces)
        if not numbers.is_any_known:
            self._make_it_fit()
        order = wanted_order(self._options.problem, self._whole.is_present)
        if order == EDGES:
            self._judge_in_order()
        best, *others = numbers.fastest_first()
        close = [each for each in others if each.step_seconds <= best.step_seconds * CLOSE]
        if close:
            # Nothing goes on beside where trials are limited, and few ops gain most by more.
            unsplit = [each for each in close[MOST_CLOSE - 1 :] if each.shards == 1]
            unsplit = [] if self._options.max_trials is None else unsplit
            for each in (best, *close[: MOST_CLOSE - 1], *unsplit):
                self._longer(each, PARTS["close_numbers"].share)
                if order == EDGES:
                    self._longer_in_order(each.key)
        winner = numbers.winner
        decided(winner.prepared)
        if winner.shards > 1 and (best_unsplit := numbers.unsplit.searched.best) is not None:
            self._timed_later(numbers.unsplit.prepared, best_unsplit)
        self._longer(winner, 1.0, order)
        told = self._told(numbers.winner)
        return told.prepared, told.searched

    def _judge_in_order(self) -> None:
        """Finds orders for the numbers that come near: pieces of weights gain most by one."""
        numbers = self._numbers
        limit = min(numbers.winner.step_seconds * NEAR, sys.float_info.max)  # what can't run isn't
        near = [key for key, each in numbers.found.items() if each.step_seconds <= limit]
        seconds = PARTS["order_of_number"].of(self._options.budget_seconds)
        if self._options.max_trials is not None:
            seconds = math.inf
        elif any(numbers.found[key].prepared.problem.num_ops > LARGE_OPS for key in near):
            return  # one order would take longer
        for key in near if len(near) > 1 and not numbers.is_interrupted else ():
            with self._progress.working():
                step = found_in_order(numbers.found[key], seconds).step_seconds
            numbers.found[key] = dataclasses.replace(numbers.found[key], in_order=step)

    def _longer_in_order(self, key: float) -> None:
        """Searches on with what starts first, as the winner will be: some gain a quarter by it."""
        tried = self._numbers.found[key]
        options = self._budget.part(self._options, PARTS["close_numbers"].share)
        if options is None or self._numbers.is_interrupted:
            return
        ordered = found_in_order(tried, options.budget_seconds)
        searched = search_in_order(
            ordered.prepared, options, ordered.searched, self._progress, options.budget_seconds
        )
        if searched.best is None or searched is ordered.searched:
            return
        took = searched.beside[-1]
        self._budget.note(
            key,
            dataclasses.replace(searched.result, num_trials=took.num_trials, seconds=took.seconds),
        )
        known = dataclasses.replace(
            tried.searched, candidates=[*tried.searched.candidates, searched.best]
        )
        step = searched.best.step_seconds
        found = ShardsFound(tried.shards, ordered.prepared, known, step)
        is_over = searched.result.interrupted
        self._numbers.found[key] = found.interrupted() if is_over else found

    def others(self) -> list[Found]:
        """What was found for other numbers than the best, the fastest first, if it can run."""
        winner = self._numbers.winner
        return [
            self._told(each)
            for each in self._numbers.fastest_first()
            if each is not winner and math.isfinite(each.step_seconds)
        ]

    def _told(self, tried: ShardsFound) -> Found:
        """What was found for a number of shards, and what is told of all numbers."""
        unsplit = None
        if tried.shards > 1:
            step, known = self._numbers.unsplit.prepared, self._numbers.unsplit.searched
            unsplit = Unsplit(step.problem, known.baselines, known.everything)
        searched = dataclasses.replace(
            tried.searched,
            shards=self._numbers.told(),
            data_parallel=self._data_parallel,
            unsplit=unsplit,
            beside=self._budget.beside(tried.searched.result),
        )
        # What no number of shards beats, pieces of weights may.
        steps_read = None if tried.cuts_weights else self._numbers.steps_read()
        return Found(dataclasses.replace(tried.prepared, steps_read=steps_read), searched)

    def _skip(self, shards: int, reason: str, cut: str = "batch") -> None:
        self._numbers.skipped.append(TriedShards(shards, reason=reason, cut=cut))

    def _try_others(self, first: int, least: Mapping[int, float]) -> None:
        """Tries other numbers, from the number of devices on, while there is time."""
        num_devices, num_looks = len(working_devices(self._whole.problem)), 0
        numbers = self._numbers
        while not numbers.is_interrupted:
            by_batch = [each for each in numbers.found.values() if not each.cuts_weights]
            steps = {each.shards: each.step_seconds for each in by_batch}
            passed = [each.shards for each in numbers.skipped if each.cut == "batch"]
            shards = next_count(num_devices, steps, passed, first)
            if shards is None:
                return
            promises = shards == first and steps[1] >= PROMISING * least.get(shards, math.inf)
            left = self._left_to_read("shard_per_device" if shards == first else "other_numbers")
            if promises:
                budget = self._options.budget_seconds
                left = PARTS["promising"].of(budget) + PARTS["promising_beyond"].of()
            hopeless = why_not(shards, steps, passed, least)
            if not hopeless and least.get(shards, 0.0) > numbers.winner.step_seconds * HOPEFUL:
                hopeless = "not tried: its work alone takes as long as the best step so far"
            reason = hopeless or self._reading.too_long(shards, left)
            if reason:
                self._skip(shards, reason)
                if promises:  # then the most that can be read
                    first = max((each for each in least if 1 < each < shards), default=first)
                elif shards == first and not hopeless:
                    first = smaller_count(first, least)
            elif num_looks < MOST_LOOKS and self._is_uncertain(shards, steps, passed, least):
                num_looks += 1
                self._look(PARTS["looking_again"].of(self._options.budget_seconds))
            else:
                self._try(shards, left if promises else self._budget.left)

    def _least_to_send(self, seconds: float) -> float:
        """The same seconds of a step in shards, or what its sums alone take to be sent."""
        places = places_of_shards(self._whole.cluster, len(working_devices(self._whole.problem)))
        try:  # decided before, for its work
            axes = self._options.problem.batch_axes
            decisions = self._whole.to_split.decisions(axes, places, self._left_whole)
        except TfplaceError:
            return math.inf
        return max(seconds, seconds_to_send(self._whole.problem, decisions))

    def _pieces(self, num_devices: int) -> Sequence[tuple[int, float]]:
        """The numbers of pieces that promise most, and the least seconds of each."""
        left = PARTS["cutting_weights"].of(self._options.budget_seconds)
        left = min(self._left_to_read("other_numbers"), left)
        if not self._numbers.is_any_known or left <= 0.0:
            return ()
        try:
            work = functools.partial(promising_pieces, self._whole, num_devices)
            found = self._meanwhile(work, left)
        except TfplaceError as error:
            self._skip(num_devices, f"can't be cut so: {str(error).splitlines()[0]}", "weights")
            return ()
        if found is None:
            self._skip(num_devices, TOO_LONG, "weights")
        return found or ()

    def _try_pieces(self, pieces: Sequence[tuple[int, float]]) -> None:
        """Tries the weights in each number of pieces that may be the fastest."""
        numbers = self._numbers
        for number, (num_pieces, least) in enumerate(pieces):
            if numbers.is_interrupted:
                return
            part = "other_numbers" if number else "shard_per_device"
            reason = self._reading.too_long(num_pieces, self._left_to_read(part))
            if least > numbers.winner.step_seconds * HOPEFUL:
                took = seconds_text(least)
                reason = f"not tried: its work, or what it sends, takes {took} at least"
            if reason:
                self._skip(num_pieces, reason, "weights")
            else:
                self._read(num_pieces, self._budget.left, cuts_weights=True)

    def _is_uncertain(
        self,
        shards: int,
        steps: Mapping[int, float],
        passed: Sequence[int],
        least: Mapping[int, float],
    ) -> bool:
        """Whether a number would not be worth a try if the unsplit step came down to its bound."""
        if self._long is None or 1 not in least:
            return False
        hoped = {**steps, 1: min(steps[1], least[1])}
        return bool(why_not(shards, hoped, passed, least))

    def _least_steps(self, counts: Sequence[int]) -> Mapping[int, float]:
        """{number of shards: what its work alone takes; 1: its bound}, as far as it is known.

        Nothing is where it would take longer than any number's first search may begin.
        """
        axes = self._options.problem.batch_axes

        def work() -> Mapping[int, float]:
            self._left_whole = self._may_stay_whole = ops_left_whole(self._whole, axes)
            self._reading.leave_whole(len(self._left_whole) / self._whole.problem.num_ops)
            least = least_steps(self._whole, axes, counts, self._left_whole)
            return {**least, 1: lower_bound_seconds(self._whole.problem)} if least else {}

        return self._meanwhile(work, self._left_to_read("shard_per_device")) or {}

    def _left_to_read(self, part: str) -> float:
        """Seconds until no number that has this part of the budget is read any more."""
        return PARTS[part].of(self._options.budget_seconds) - self._budget.elapsed

    def _make_it_fit(self) -> None:
        """Where nothing fits: ops run again, or shards one after another, the fewest that fit.

        However long the first of these takes: without it there may be nothing to search on.
        """
        numbers, unsplit = self._numbers, self._numbers.unsplit
        planned = within_memory(
            Found(unsplit.prepared, unsplit.searched), self._options, self._progress
        )
        if planned is not None:
            self._long = None  # it goes on with the step as it was
            numbers.found[1] = ShardsFound(1, planned.prepared, planned.searched)
        if self._options.problem.order == NONE:
            return
        for key in list(numbers.found)[1:]:
            numbers.found[key] = found_in_order(numbers.found[key])
        counts = [each for each in counts_that_may_fit(unsplit) if each not in numbers.found]
        too_long: list[int] = []
        for number, shards in enumerate(counts):
            if numbers.is_interrupted or numbers.is_any_split_known:
                break
            is_needed = not number and planned is None
            if not is_needed and self._reading.too_long(shards, self._budget.left):
                too_long = counts[number:]
                break
            numbers.skipped = [each for each in numbers.skipped if each.shards != shards]
            self._try(shards, math.inf)
            if shards in numbers.found:
                numbers.found[shards] = found_in_order(numbers.found[shards])
        if planned is None:
            require_one_that_fits([*numbers.found.values()], too_long, self._options)

    def _try(self, shards: int, seconds: float) -> None:
        self._read(shards, seconds)
        if self._may_stay_whole and shards in self._numbers.found and not self._is_way_known:
            limits = self._options
            is_quick = self._reading.seconds <= PARTS["both_ways"].of(limits.budget_seconds)
            # With a limit of trials the clock decides nothing.
            self._is_way_known = not is_quick or limits.max_trials is not None
            if not self._is_way_known:
                self._compare_ways(shards)

    def _compare_ways(self, shards: int) -> None:
        """Reads a number the other way, too: which ops had better stay whole is an estimate."""
        numbers, left_whole = self._numbers, self._left_whole
        found = numbers.found.pop(shards)
        self._left_whole = () if left_whole else self._may_stay_whole
        self._read(shards, self._budget.left)
        other = numbers.found.get(shards)
        if other is None or found.step_seconds <= other.step_seconds:
            numbers.skipped = [each for each in numbers.skipped if each.shards != shards]
            if other is not None and other.searched.result.interrupted:
                found = found.interrupted()
            numbers.found[shards], self._left_whole = found, left_whole
        steps = [found.step_seconds, math.inf if other is None else other.step_seconds]
        self._is_way_known = max(steps) > min(steps) * CLOSE

    def _read(self, shards: int, seconds: float, cuts_weights: bool = False) -> None:
        """Reads the step in so many shards, in as many seconds, and searches for the first time."""
        what = f"its weights into {shards} pieces" if cuts_weights else f"it into {shards} shards"
        self._progress.say(f"reading the step, splitting {what} and pricing their ops")
        options = dataclasses.replace(
            self._options.problem,
            num_shards=shards,
            cuts_weights=cuts_weights,
            left_whole=() if cuts_weights else self._left_whole,
        )
        cut = "weights" if cuts_weights else "batch"
        began = time.monotonic()
        is_timed = self._whole.costs.source != "analytic"
        work = functools.partial(prepare, options, trace=is_timed, earlier=self._whole)
        try:
            prepared = self._meanwhile(work, seconds)
        except TfplaceError as error:
            self._skip(shards, f"can't be split so: {str(error).splitlines()[0]}", cut)
            return
        self._reading.note(shards, time.monotonic() - began)
        if prepared is None:
            with interruptible() as interruption:
                why = "not tried: interrupted" if interruption.seen else TOO_LONG
                self._skip(shards, why, cut)
            return
        limited = at_most(prepared, self._options.max_devices)
        self._first(shards, limited)

    def _is_annealed_long(self) -> bool:
        """Whether the unsplit step's search is one annealing, that others interrupt."""
        options = self._options
        is_annealed = options.algorithm == "auto" and self._trained is None
        is_simulated = options.evaluator != "measure"
        # With a limit of trials nothing goes on beside: what is found must not depend on the clock.
        is_long = is_annealed and is_simulated and options.max_trials is None
        return is_long and self._whole.problem.num_devices > 1

    def _begin_long(self, baselines: Sequence[Candidate]) -> Sequence[Stage]:
        """The unsplit step's long search, which begins with what needs no search."""
        best = best_of(baselines)
        start = None if best is None else best.device_of_op
        self._long = LongSearch(self._whole.instance, self._options.seed, start, self._left_of_long)
        return [self._long.first_stage()]

    def _meanwhile(self, work: Callable[[], Result], seconds: float) -> Result | None:
        """What `work` returns, None after a signal or if it takes longer than so many seconds.

        The unsplit step's long search goes on beside if a core is left for it.
        """
        with self._progress.working():
            if self._long is None or not self._has_core:
                with interruptible() as interruption:
                    return interruption.unless_seen_in_time(work, None, seconds)
            answer, result = self._long.beside(work, seconds)
        self._note_long(result)
        return answer

    def _look(self, seconds: float) -> None:
        """Goes on with the long search for so many seconds, on all cores."""
        assert self._long is not None
        end = time.monotonic() + seconds
        with self._progress.working():
            found = self._long.until(lambda: time.monotonic() >= end)
        self._note_long(found)

    def _left_of_long(self) -> Limits:
        """What the unsplit step's long search would have if it were all that comes."""
        order = wanted_order(self._options.problem, self._whole.is_present)
        part = self._budget.part(budget_beside_order(with_order(self._whole, order), self._options))
        return Limits(0.0 if part is None else part.budget_seconds)

    def _note_long(self, result: SearchResult) -> None:
        """Takes what a piece of the long search has found."""
        self._budget.note(1, result)
        name = f"found by {self._options.algorithm}"
        self._numbers.found[1] = self._numbers.unsplit.also(result, name)

    def _first(self, shards: int, prepared: PreparedModel) -> None:
        """The first search of a number, which begins with what the unsplit step's has found."""
        known, found = [], None
        if shards > 1 and self._numbers.unsplit.prepared.unplanned is None:
            found = self._numbers.unsplit.searched.best
        if found is not None:
            projected = for_all_shards(prepared.problem, self._whole.problem, found.device_of_op)
            outcome = simulated(prepared.problem, projected).outcome
            known.append(Candidate("the unsplit placement, for all shards", projected, outcome))
        share, most = PARTS["number_of_shards"].share, self._options.max_trials
        # A trial of eight shards is as much work as eight of the unsplit step.
        work = prepared.problem.num_ops / self._whole.problem.num_ops
        options = dataclasses.replace(
            self._options,
            budget_seconds=share * self._options.budget_seconds,
            max_trials=None if most is None else max(int(share * most / work), 1),
        )
        stages = self._begin_long if shards == 1 and self._is_annealed_long() else None
        found_now = find_placement(
            prepared, options, self._trained, None, self._progress, known=known, stages=stages
        )
        found_of = ShardsFound(shards, prepared, found_now)
        self._budget.note(found_of.key, found_now.result)
        self._numbers.found[found_of.key] = found_of
        for each in found_now.baselines:
            if each.name == DATA_PARALLEL and not found_of.cuts_weights:
                self._data_parallel = EvenSplit(prepared.problem, each)

    def _longer(self, tried: ShardsFound, share: float, order: str = NONE) -> None:
        """Another search of a number that was tried."""
        if self._numbers.is_interrupted:
            return
        limits = budget_beside_order(with_order(tried.prepared, order), self._options)
        options, stages = self._budget.part(limits, share), None
        if options is None:
            return
        if tried.shards == 1 and self._long is not None:
            if share < 1.0:
                self._look(options.budget_seconds)
                return
            if share == 1.0:
                stages = self._long.last_stages
        earlier = tried.searched
        searched = find_placement(
            tried.prepared, options, self._trained, None, self._progress, earlier, stages=stages
        )
        self._budget.note(tried.key, searched.result)
        self._numbers.found[tried.key] = dataclasses.replace(tried, searched=searched)
