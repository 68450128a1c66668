"""`--shards=auto`: which numbers are tried, what is searched on, and what it never does."""

import dataclasses
import math
import types
from typing import Any

import numpy as np
import pytest

from graphs.errors import UsageError
from graphs.problem import Infeasible, Measurement
from tests.split_steps import split_step
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.find_placement import Beside, Searched
from tfplace.choosing.shards import shard_search as find_shards
from tfplace.choosing.shards.shared_budget import TOO_LONG
from tfplace.commands.from_flags import num_shards
from tfplace.preparing.options import AUTO, OptimizeOptions, ProblemOptions, require_outputs
from tfplace.progress import Progress
from tfplace.search.search import Limits
from tfplace.search.trial_log import SearchResult


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """What a search of numbers of shards needs of a prepared model."""

    problem: object
    shards: int
    is_present: bool = True
    order: object = None
    unlimited: object = None
    unplanned: object = None
    steps_read: object = None
    timed: object = None
    serves_any_batch: bool = False
    left_whole: int = 0
    reading_seconds: float = 0.0
    pieces: bool = False
    cluster = None
    to_split = types.SimpleNamespace(decisions=lambda *args, **known: None)
    costs = types.SimpleNamespace(source="analytic")
    instance = None

    @property
    def split(self):
        decisions = types.SimpleNamespace(
            batch=32, num_left_whole=self.left_whole, pieces=self.pieces
        )
        return None if self.shards == 1 else types.SimpleNamespace(decisions=decisions)


def _result(num_trials, interrupted=False):
    empty = {field.name: None for field in dataclasses.fields(SearchResult)}
    known = {"num_trials": num_trials, "seconds": 1.0, "interrupted": interrupted}
    return SearchResult(**{**empty, **known})


class _World:
    """Steps and reading take what a test says; a longer search finds half a percent more."""

    def __init__(self, monkeypatch, steps, errors=()):
        self.now, self.searches, self.decided = 0.0, [], []
        self._steps, self._errors, self.reading = steps, errors, 1.0
        self.interrupt_at, self.single = math.inf, dict[int, float]()
        self.least, self.pieces = dict[int, float](), list[float]()
        self.longer, self.in_pieces = 0.995, math.inf
        self.interrupt_beside, self.parts, self.bound = math.inf, 0, 0.25
        self.serves_any_batch, self.left_at_first = False, Limits(0.0)
        self.left_whole, self.whole_takes = frozenset[str](), 1.0
        self.whole_takes_of = dict[int, float]()
        self.least_pieces, self.to_send, self.num_pieces = math.inf, 0.0, 0
        self.more_pieces = list[int]()
        self.trials_in_order, self.interrupt_in_order = 0, False
        self.order_takes, self.problem_of = dict[float, float](), dict[int, object]()
        for name, value in {
            "find_placement": self.find_placement,
            "prepare": self.prepare,
            "least_steps": lambda whole, axes, counts, left_whole: self.least,
            "ops_left_whole": lambda whole, axes: self.left_whole,
            "promising_pieces": lambda whole, count: self.in_pieces_of(count),
            "found_in_order": self.found_in_order,
            "search_in_order": self.search_in_order,
            "places_of_shards": lambda cluster, count: (),
            "seconds_to_send": lambda problem, decisions: self.to_send,
            "lower_bound_seconds": lambda problem: self.bound,
            "best_of": lambda known: known[0],
            "LongSearch": lambda instance, seed, start, left: _Long(self, left),
            "at_most": lambda prepared, most: prepared,
            "EvenSplit": lambda problem, found: f"of {found.device_of_op}",
            "for_all_shards": lambda *each: None,
            "simulated": lambda *each: dataclasses.make_dataclass("S", ["outcome"])(None),
        }.items():
            monkeypatch.setattr(find_shards, name, value)
        monkeypatch.setattr("tfplace.choosing.shards.shard_search.time.monotonic", lambda: self.now)
        self.num_cores = 4
        cores = "tfplace.choosing.shards.shard_search.os.sched_getaffinity"
        monkeypatch.setattr(cores, lambda process: range(self.num_cores))

    def prepare(self, options, trace, earlier):
        if options.num_shards in self._errors:
            raise UsageError("the batch is too small; take fewer")
        self.now += self.reading * (options.num_shards + 1) / 2
        left_whole, pieces = len(options.left_whole), options.cuts_weights
        problem = self.problem_of.get(options.num_shards, _PROBLEM)
        return _Prepared(problem, options.num_shards, left_whole=left_whole, pieces=pieces)

    def find_placement(
        self, prepared, options, trained, folder, progress, earlier=None, known=(), stages=None
    ):
        self.searches.append((prepared.shards, options.budget_seconds, options.max_trials))
        self.stages = None if stages is None else stages([Candidate("single", _NOWHERE, _NOTHING)])
        self.now += options.budget_seconds
        seconds = self._steps[prepared.shards + 0.5 * prepared.pieces]
        if prepared.left_whole:
            seconds *= self.whole_takes_of.get(prepared.shards, self.whole_takes)
        if len([each for each, *_ in self.searches if each == prepared.shards]) > 1:
            seconds *= self.longer
        outcome = Measurement(seconds, (), "") if math.isfinite(seconds) else _NOTHING
        took = self.single.get(prepared.shards, 2.0)
        single = Candidate("single", _NOWHERE, Measurement(took, (), ""))
        found = Candidate("found", None, outcome)
        stops = len(self.searches) >= self.interrupt_at
        baselines = [single]
        if prepared.shards == 4:  # as many as devices
            baselines.append(Candidate("data_parallel", 4, outcome))  # type: ignore[arg-type]
        candidates = [found] if earlier is None else [*earlier.candidates, found]
        return Searched(baselines, candidates, _result(options.max_trials or 10, stops))

    def search_in_order(self, prepared, options, searched, progress, left_seconds):
        if not self.trials_in_order:
            return searched
        result = dataclasses.replace(searched.result, interrupted=self.interrupt_in_order)
        beside = [Beside("in order", self.trials_in_order, 0.0)]
        return dataclasses.replace(searched, result=result, beside=beside)

    def in_pieces_of(self, count):
        numbers = dict.fromkeys([self.num_pieces or count, *self.more_pieces])
        return [(each, self.least_pieces) for each in numbers if self.least_pieces < math.inf]

    def found_in_order(self, found, seconds=math.inf):
        step = self._steps[found.key] * self.order_takes.get(found.key, 1.0)
        return dataclasses.replace(found, in_order=step)

    def run(self, order="none", **options):
        given = OptimizeOptions(ProblemOptions("m.pb", num_shards=AUTO, order=order), **options)
        first: Any = _Prepared(_PROBLEM, 1, serves_any_batch=self.serves_any_batch)
        first = dataclasses.replace(first, reading_seconds=self.reading)
        search: Any = find_shards.ShardSearch(first, given, None, Progress())
        prepared, searched = search.run(lambda decided: self.decided.append(decided.shards))
        self.read = prepared.steps_read
        return prepared.shards, {each.shards: each for each in searched.shards}, searched


class _Long:
    """The unsplit step's long search: what it finds in pieces takes what the test says."""

    def __init__(self, world, left):
        self._world, self._left = world, left

    def beside(self, work, seconds):
        left, end = self._left().budget_seconds, self._world.now + seconds
        answer, found = work(), self._found(left)
        is_late, self._world.now = self._world.now > end, min(self._world.now, end)
        return (None if found.interrupted or is_late else answer), found

    def until(self, is_over):
        left = self._left().budget_seconds
        while not is_over():
            self._world.now += 1.0
        self._world.parts += 1
        return self._found(left)

    def first_stage(self):
        self._world.left_at_first = self._left()
        return "the beginning of the long search"

    def last_stages(self, known):
        return ["the rest of the long search"]

    def _found(self, seconds):
        self._world.pieces.append(seconds)
        outcome = Measurement(self._world.in_pieces, (), "")
        trial = types.SimpleNamespace(placement=types.SimpleNamespace(device_of_op=None))
        trial.outcome = outcome
        is_last = len(self._world.pieces) >= self._world.interrupt_beside
        return dataclasses.replace(_result(5, is_last), best=trial)


_PROBLEM = split_step(2, num_devices=5)  # a CPU and four GPUs
_NOWHERE = np.zeros(1, np.int32)
_NOTHING = Infeasible("memory", "it does not fit")


def test_the_best_number_gets_most_of_the_time_and_the_report_has_all(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.3, 8: 0.4})
    shards, tried, searched = world.run(budget_seconds=100.0)
    assert shards == 4 and world.decided == [4]
    assert world.searches[-1][0] == 4 and world.searches[-1][1] > 50.0
    assert world.now == pytest.approx(100.0)
    assert [*tried] == [1, 2, 4, 8]
    assert tried[8].step_seconds == 0.4 and tried[8].single_seconds == 2.0
    assert "1" in tried[2].reason and tried[2].step_seconds is None
    assert searched.data_parallel == "of 4"
    assert [*world.read.problems] == [4, 8, 1] and world.read.batch == 32 and world.read.is_priced


@pytest.mark.parametrize(
    ("whole_takes", "reading", "left"), [(0.8, 1.0, 2), (1.2, 1.0, 0), (1.2, 9.0, 2)]
)
def test_both_ways_are_tried_where_reading_is_quick(monkeypatch, whole_takes, reading, left):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.3, 8: 0.4})
    world.left_whole, world.whole_takes, world.reading = frozenset({"a", "b"}), whole_takes, reading
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 4 and world.read.left_whole == left
    assert tried[4].step_seconds == pytest.approx(0.3 * (whole_takes if left else 1.0), rel=0.01)


def test_while_both_ways_are_close_each_number_is_read_both_ways(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.3, 8: 0.31})
    world.left_whole = frozenset({"a", "b"})
    world.whole_takes_of, world.reading = {4: 1.1, 8: 0.9}, 0.5
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 8 and world.read.left_whole == 2
    assert [each for each, *_ in world.searches[:5]] == [1, 4, 4, 8, 8]
    assert tried[8].step_seconds == pytest.approx(0.31 * 0.9, rel=0.01)
    assert [*world.read.problems] == [8, 1]  # four shards have all ops split


def test_a_signal_while_the_other_way_is_searched_ends_the_search(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.3, 8: 0.4})
    world.left_whole, world.whole_takes, world.interrupt_at = frozenset({"a"}), 0.8, 3
    _, tried, searched = world.run(budget_seconds=100.0)
    assert [each for each, *_ in world.searches] == [1, 4, 4]
    assert tried[4].step_seconds == 0.3 * 0.8 and searched.result.interrupted


def test_a_split_step_is_compared_with_the_unsplit_one(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.3, 8: 0.4})
    world.single = {1: 1.2, 4: 1.5}
    _, tried, searched = world.run(budget_seconds=100.0)
    reported = searched.reported_baselines(_PROBLEM)
    assert reported["single"].step_seconds == tried[1].single_seconds == 1.2
    world = _World(monkeypatch, {1: 0.3, 4: 0.7})
    assert world.run(budget_seconds=100.0)[2].unsplit is None


def test_numbers_that_are_close_are_searched_longer_before_one_is_decided_on(monkeypatch):
    world = _World(monkeypatch, {1: 0.32, 2: 0.5, 4: 0.3, 8: 0.36})
    world.run(budget_seconds=100.0)
    assert [shards for shards, *_ in world.searches[-2:]] == [4, 4] and world.parts == 1


def test_within_a_percent_fewer_shards_win(monkeypatch):
    world = _World(monkeypatch, {1: 0.3005, 4: 0.3, 2: 0.5, 8: 0.5})
    assert world.run(budget_seconds=100.0)[0] == 1


def test_the_unsplit_step_is_kept_where_splitting_is_slower(monkeypatch):
    world = _World(monkeypatch, {1: 0.3, 4: 0.7})
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 1 and world.searches[-1][0] == 1
    assert tried[2].step_seconds is None and tried[8].step_seconds is None


def test_what_has_too_much_work_is_not_even_read(monkeypatch):
    world = _World(monkeypatch, {1: 0.3})
    world.least = {2: 0.2, 4: 0.4, 8: 0.8}
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 1 and [each for each, *_ in world.searches] == [1, 1]
    assert world.now == pytest.approx(100.0)
    assert "its work alone takes 1.3 times" in tried[4].reason and "with 4" in tried[2].reason


def test_what_takes_too_long_to_read_is_not_begun(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 4: 0.3})
    world.reading = 11.0
    shards, tried, _ = world.run(budget_seconds=100.0)  # 4 seem to take 50 s, 8 then 34 s
    assert shards == 4 and "too much of the budget" in tried[8].reason
    world = _World(monkeypatch, {1: 1.0})
    world.reading = 60.0
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 1 and "too much of the budget" in tried[4].reason
    assert world.now == pytest.approx(100.0)


def test_what_is_read_longer_than_it_should_be_is_not_waited_for(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.5, 4: 0.3, 8: 0.4})
    world.reading = 1.0
    reads = world.prepare

    def long(options, trace, earlier):
        world.now += 200.0
        return reads(options, trace, earlier)

    monkeypatch.setattr(find_shards, "prepare", long)
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 1 and world.now == pytest.approx(100.0)
    assert {each.reason for number, each in tried.items() if number > 1} == {TOO_LONG}


def test_deciding_has_three_quarters_of_the_budget(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.5, 4: 0.3, 8: 0.4})

    def long(whole, axes):
        world.now += 200.0
        return frozenset()

    monkeypatch.setattr(find_shards, "ops_left_whole", long)
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 1 and world.now == pytest.approx(100.0)
    assert world.pieces and tried[4].reason == TOO_LONG


@pytest.mark.parametrize(("reading", "read"), [(22.0, 4), (29.0, 2), (36.0, 1)])
def test_what_promises_most_is_read_unless_it_takes_far_more_than_the_budget(
    monkeypatch, reading, read
):
    world = _World(monkeypatch, {1: 1.0, 2: 0.3, 4: 0.2})
    world.least = {2: 0.2, 4: 0.1, 8: 0.1}
    world.reading = reading  # 4 seem to take 99, 131 or 162 s, 2 take 88, 116 or 144 s
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == read
    assert [each for each in (4, 2) if "too much" in tried[each].reason] == [4, 2][: 2 - read // 2]


@pytest.mark.parametrize("longer", [0.5, 1.5])
def test_the_unsplit_step_s_long_search_goes_on_beside_reading_and_to_its_end(monkeypatch, longer):
    world = _World(monkeypatch, {1: 0.3, 4: 0.7})
    world.longer = longer
    _, tried, searched = world.run(budget_seconds=100.0)
    assert [shards for shards, *_ in world.searches] == [1, 4, 1]
    assert world.stages == ["the rest of the long search"]
    assert world.left_at_first.budget_seconds == 100.0
    assert world.pieces == [94.0] * 3  # beside two estimates of work, and reading four shards
    assert tried[1].step_seconds == min(0.3, 0.3 * longer)
    told = {each.name: each.num_trials for each in searched.beside}
    assert told == {"unsplit": 25, "4 shards": 10}
    world = _World(monkeypatch, {1: 0.7, 2: 0.6, 4: 0.3, 8: 0.5})
    world.run(budget_seconds=100.0)
    assert world.stages is None


def test_on_two_cores_beside_real_runs_nothing_is_searched_beside_reading(monkeypatch):
    world = _World(monkeypatch, {1: 0.3, 4: 0.7})
    world.num_cores = 2
    world.run(budget_seconds=100.0)
    assert not world.pieces and world.stages == ["the rest of the long search"]


def test_what_the_long_search_finds_beside_reading_counts(monkeypatch):
    world = _World(monkeypatch, {1: 0.7, 4: 0.5})
    world.in_pieces = 0.3
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 1 and tried[1].step_seconds == 0.3 and tried[2].step_seconds is None


@pytest.mark.parametrize("bound", [0.1, 0.25])
def test_what_a_better_unsplit_step_would_rule_out_is_read_only_after_a_longer_look(
    monkeypatch, bound
):
    world = _World(monkeypatch, {1: 0.5, 2: 0.5, 4: 0.7, 8: 0.7})
    world.least, world.bound = {2: 0.3, 4: 0.2, 8: 0.45}, bound
    world.run(budget_seconds=100.0)
    assert world.parts == (2 if bound < 0.25 else 0)


def test_where_a_shard_for_each_device_takes_too_long_a_smaller_number_may_take_as_long(
    monkeypatch,
):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.5, 8: 0.9})
    world.least, world.bound = {2: 0.3, 4: 0.3, 8: 0.5}, 0.6
    world.reading = 16.0  # 4 may take 72 s, 2 take 64 s, and any other number has to begin at 50 s
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 2 and "too much of the budget" in tried[4].reason


def test_an_unsplit_step_that_cannot_come_near_is_not_searched_longer(monkeypatch):
    world = _World(monkeypatch, {1: 5.0, 2: 0.5, 4: 0.3, 8: 0.4})
    world.least, world.bound = {2: 0.2, 4: 0.2, 8: 0.2}, 0.8
    assert world.run(budget_seconds=100.0)[0] == 4
    assert world.pieces == [94.0]  # beside estimating work


def test_a_signal_beside_reading_loses_nothing(monkeypatch):
    world = _World(monkeypatch, {1: 0.3, 4: 0.7})
    world.interrupt_beside = 1
    _, tried, searched = world.run(budget_seconds=100.0)
    assert tried[1].step_seconds == 0.3 and searched.result.interrupted
    assert len(world.searches) == 1


def test_where_trials_are_limited_nothing_is_searched_beside_reading(monkeypatch):
    world = _World(monkeypatch, {1: 0.3, 4: 0.7})
    world.run(budget_seconds=100.0, max_trials=1000)
    assert not world.pieces and world.stages is None


def test_a_trial_of_a_split_step_counts_as_the_work_that_it_is(monkeypatch):
    world = _World(monkeypatch, {1: 0.3, 4: 0.7})
    whole = _PROBLEM.num_ops
    world.problem_of = {4: types.SimpleNamespace(num_ops=5 * whole)}
    world.run(budget_seconds=100.0, max_trials=1000)
    assert [(shards, most) for shards, _, most in world.searches[:2]] == [(1, 60), (4, 12)]


def test_an_unsplit_step_that_is_close_is_searched_longer_where_trials_are_limited(monkeypatch):
    world = _World(monkeypatch, {1: 1.1, 2: 5.0, 4: 1.0, 8: 1.05})
    world.run(budget_seconds=100.0, max_trials=1000)
    assert [shards for shards, *_ in world.searches].count(1) == 2
    world = _World(monkeypatch, {1: 1.1, 2: 5.0, 4: 1.0, 8: 1.05})
    world.run(budget_seconds=100.0)
    assert [shards for shards, *_ in world.searches].count(1) == 1


@pytest.mark.parametrize("most", [None, 1000])
def test_the_search_in_order_shares_what_reading_has_left(monkeypatch, most):
    world = _World(monkeypatch, {1: 0.3, 4: 0.7})
    world.reading = 15.0
    world.run("edges", budget_seconds=100.0, max_trials=most)  # 4 take 37.5 s, 50.5 are left
    *first, (shards, seconds, trials) = world.searches
    assert (shards, seconds) == (1, pytest.approx(0.9 * 50.5))
    assert most is None or trials + sum(each for *_, each in first) == 900


def test_a_batch_that_is_too_small_is_said_not_raised(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6}, errors=(4, 8))
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 2 and "the batch is too small" in tried[4].reason


def test_what_fits_only_when_it_is_split_is_found(monkeypatch):
    world = _World(monkeypatch, {1: math.inf, 2: 1.0, 4: 0.9, 8: 0.8})
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 8
    assert tried[1].step_seconds is None and tried[1].reason


def test_what_serves_any_batch_is_split_only_where_nothing_else_fits(monkeypatch):
    """Requests of one entry would fail."""
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.3, 8: 0.4})
    world.serves_any_batch = True
    shards, tried, _ = world.run(budget_seconds=100.0)
    assert shards == 1 and [*tried] == [1, 2, 4, 8] and "any size" in tried[4].reason
    world = _World(monkeypatch, {1: math.inf, 2: 1.0, 4: 0.9, 8: 0.8})
    world.serves_any_batch = True
    assert world.run(budget_seconds=100.0)[0] == 8


def test_trials_are_shared_out_like_seconds(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.3, 8: 0.4})
    _, _, searched = world.run(budget_seconds=100.0, max_trials=1000)
    trials = [most for *_, most in world.searches]
    assert trials[:3] == [60, 60, 60] and sum(trials) == 1000
    assert [each.name for each in searched.beside] == ["unsplit", "4 shards", "8 shards"]
    told = sum(each.num_trials for each in searched.beside)
    assert told + searched.result.num_trials == 1000


def test_without_a_budget_what_is_known_anyway_is_taken(monkeypatch):
    assert _World(monkeypatch, {1: 1.0, 4: 0.5}).run(budget_seconds=0.0)[0] == 1


def test_after_a_signal_nothing_more_is_searched(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 4: 0.3})
    world.interrupt_at = 1
    assert world.run(budget_seconds=100.0)[0] == 1
    assert len(world.searches) == 1


def test_shards_are_a_number_or_auto():
    assert num_shards("3") == 3 and num_shards("auto", may_be_auto=True) == AUTO
    with pytest.raises(UsageError, match=r"--shards=auto: wanted a whole number.*optimize"):
        num_shards("auto")
    for text in ("0", "-1", "two", "1.5"):
        with pytest.raises(UsageError, match="wanted a whole number of at least 1, or auto"):
            num_shards(text, may_be_auto=True)
    for text in ("9" * 20, "9" * 5000):  # memory would not do to list where each lies
        with pytest.raises(UsageError, match="at least 1 and below 10,000,000, or auto"):
            num_shards(text, may_be_auto=True)


@pytest.mark.parametrize("more", [{"checkpoint_dir": "kept"}, {"evaluator": "measure"}])
def test_what_auto_does_not_go_with_is_refused(more):
    with pytest.raises(UsageError, match="--shards=auto"):
        require_outputs(OptimizeOptions(ProblemOptions("m.pb", num_shards=AUTO), **more))


def of_weights(searched):
    [told] = [each for each in searched.shards if each.cut == "weights"]
    return told


def test_weights_in_pieces_are_tried_first_where_they_promise_more(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 4.5: 0.2})
    world.least, world.least_pieces, world.to_send = {1: 0.9, 2: 0.5, 4: 0.25, 8: 0.25}, 0.1, 0.5
    found, _, searched = world.run()
    assert found == 4 and of_weights(searched).step_seconds < 0.2
    reasons = {each.reason for each in searched.shards if each.shards > 1 and each.cut == "batch"}
    assert reasons == {"not tried: its work alone takes as long as the best step so far"}
    assert world.read is None or 4 not in world.read.problems


def test_weights_in_pieces_come_last_where_shards_promise_more(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.3, 8: 0.4, 4.5: 0.28})
    world.least, world.least_pieces = {1: 0.9, 2: 0.5, 4: 0.25, 8: 0.25}, 0.26
    _, _, searched = world.run(budget_seconds=600.0)
    assert of_weights(searched).step_seconds < 0.28
    assert [each[0] for each in world.searches[:2]] == [1, 4]
    assert world.read is None  # a bound for all numbers of shards is none of what was found


def test_weights_in_pieces_that_promise_nothing_are_not_read(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2: 0.6, 4: 0.3, 8: 0.4})
    world.least, world.least_pieces = {1: 0.9, 2: 0.5, 4: 0.25, 8: 0.25}, 0.28
    _, _, searched = world.run(budget_seconds=600.0)
    assert of_weights(searched).reason == (
        "not tried: its work, or what it sends, takes 280 ms at least"
    )


def test_so_many_pieces_are_read_as_promise_most(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2.5: 0.2})
    world.least, world.to_send = {1: 0.9, 2: 0.5, 4: 0.25, 8: 0.25}, 0.5
    world.num_pieces, world.least_pieces = 2, 0.1
    found, _, searched = world.run()
    assert found == 2 and of_weights(searched).shards == 2


def test_another_number_of_pieces_is_tried_besides(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2.5: 0.2, 4.5: 0.1})
    world.least, world.to_send = {1: 0.9, 2: 0.5, 4: 0.25, 8: 0.25}, 0.5
    world.num_pieces, world.more_pieces, world.least_pieces = 2, [4], 0.05
    found, _, searched = world.run()
    assert found == 4 and [each.shards for each in searched.shards if each.cut == "weights"] == [
        2,
        4,
    ]


def test_another_number_of_pieces_is_left_out_where_half_of_the_budget_is_gone(monkeypatch):
    world = _World(monkeypatch, {1: 1.0, 2.5: 0.2, 4.5: 0.1})
    world.least, world.to_send = {1: 0.9, 2: 0.5, 4: 0.25, 8: 0.25}, 0.5
    world.num_pieces, world.more_pieces, world.least_pieces = 2, [4], 0.05
    world.reading = 10.0
    found, _, searched = world.run(budget_seconds=60.0)
    why = {each.shards: each.reason for each in searched.shards if each.cut == "weights"}
    assert found == 2 and why == {2: "", 4: TOO_LONG}


@pytest.mark.parametrize("order", ["none", "edges"])
def test_numbers_that_come_near_are_judged_with_an_order(monkeypatch, order):
    world = _World(monkeypatch, {1: 1.0, 2: 2.0, 4: 2.0, 8: 2.0, 2.5: 1.3})
    world.least, world.num_pieces, world.least_pieces = {1: 0.9, 2: 0.5, 4: 0.9}, 2, 0.5
    world.order_takes = {2.5: 0.7}
    found, _, _ = world.run(order=order, budget_seconds=600.0)
    assert found == (2 if order == "edges" else 1)


def _searched_in_order(monkeypatch, trials, interrupt=False):
    world = _World(monkeypatch, {1: 1.0, 2: 2.0, 4: 2.0, 8: 2.0, 2.5: 0.95})
    world.least, world.num_pieces, world.least_pieces = {1: 0.9, 2: 0.5, 4: 0.9}, 2, 0.5
    world.trials_in_order, world.interrupt_in_order = trials, interrupt
    _, _, searched = world.run(order="edges", max_trials=100_000, budget_seconds=600.0)
    return world.searches[-1][2], searched.result.interrupted


def test_what_is_searched_in_order_before_one_is_decided_on_counts(monkeypatch):
    without, _ = _searched_in_order(monkeypatch, 0)
    counted, _ = _searched_in_order(monkeypatch, 100)
    assert counted <= without - 100  # two numbers were close, which share what is left
    assert _searched_in_order(monkeypatch, 100, interrupt=True)[1]
