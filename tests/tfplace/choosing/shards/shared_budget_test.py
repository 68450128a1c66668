"""Tests of tfplace.choosing.shared_budget."""

import dataclasses

import pytest

from tfplace.choosing.shards.shared_budget import SharedBudget
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.search.trial_log import SearchResult


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("tfplace.choosing.shards.shared_budget.time.monotonic", lambda: now[0])
    return now


def _options(**limits):
    return OptimizeOptions(ProblemOptions("m.pb"), **limits)


def _result(num_trials, seconds=1.0):
    empty = {field.name: None for field in dataclasses.fields(SearchResult)}
    return SearchResult(**{**empty, "num_trials": num_trials, "seconds": seconds})


def test_a_search_gets_its_share_of_what_is_left(clock):
    options = _options(budget_seconds=60.0)
    budget = SharedBudget(options)
    clock[0] += 20.0
    assert budget.elapsed == 20.0 and budget.left == 40.0
    part = budget.part(options, 0.25)
    assert (part.budget_seconds, part.max_trials) == (pytest.approx(10.0), None)
    three_quarters = dataclasses.replace(options, budget_seconds=45.0)
    assert budget.part(three_quarters).budget_seconds == pytest.approx(30.0)
    clock[0] += 40.0
    assert budget.part(options) is None


def test_trials_that_were_used_are_gone(clock):
    options = _options(budget_seconds=60.0, max_trials=1000)
    budget = SharedBudget(options)
    budget.note(1, _result(300))
    budget.note(4, _result(100))
    assert budget.part(options, 0.5).max_trials == 300
    assert budget.part(dataclasses.replace(options, max_trials=700)).max_trials == 300
    assert budget.part(dataclasses.replace(options, max_trials=100)).max_trials == 1


def test_what_is_reported_is_not_told_beside(clock):
    budget = SharedBudget(_options())
    last = _result(500)
    for shards, result in [(4, _result(100)), (1, _result(50)), (1, _result(7, 2.0)), (4, last)]:
        budget.note(shards, result)
    told = [(each.name, each.num_trials, each.seconds) for each in budget.beside(last)]
    assert told == [("unsplit", 57, 3.0), ("4 shards", 100, 1.0)]
