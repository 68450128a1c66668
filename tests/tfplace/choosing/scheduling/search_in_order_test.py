"""Ranks and placement are searched together, within the limits, and only by `auto`."""

import dataclasses
import math
import types

import numpy as np
import pytest

from graphs.problem import Measurement
from tfplace.choosing.baselines import best_of
from tfplace.choosing.find_placement import find_placement
from tfplace.choosing.scheduling import search_in_order as search_in_order_module
from tfplace.choosing.scheduling.edges import order_edges
from tfplace.choosing.scheduling.list_schedules import by_longest_path
from tfplace.choosing.scheduling.model_order import ModelOrder, wanted_order, with_order
from tfplace.choosing.scheduling.search_in_order import budget_beside_order, search_in_order
from tfplace.choosing.shards.in_order import in_order
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.progress import Progress


@pytest.fixture(scope="module")
def options(tiny_rnnlm, slow_cpu_cluster):
    problem = ProblemOptions(tiny_rnnlm, cluster=slow_cpu_cluster, order="edges")
    return OptimizeOptions(problem, evaluator="simulate", max_trials=200)


@pytest.fixture(scope="module")
def prepared(options):
    return with_order(prepare(options.problem), "edges")


def searched(prepared, options):
    limited = budget_beside_order(prepared, options)
    return in_order(prepared, find_placement(prepared, limited, None, None, Progress()))


def test_the_search_goes_on_from_the_best_and_its_finds_count_by_their_edges(prepared, options):
    before = searched(prepared, options)
    after = search_in_order(prepared, options, before, Progress())
    new = after.candidates[len(before.candidates) :]
    assert [candidate.name for candidate in new] == ["found in order"] * 2
    for candidate in new:
        placed = prepared.order.ordered(prepared, candidate.device_of_op)
        assert candidate.outcome == placed.outcome
        assert candidate.step_seconds <= placed.without.step_seconds
    assert best_of(after.candidates).step_seconds <= best_of(before.candidates).step_seconds
    assert [(each.name, each.num_trials) for each in after.beside] == [("in order", 20)]
    again = search_in_order(prepared, options, before, Progress())
    for one, other in zip(new, again.candidates[len(before.candidates) :], strict=True):
        assert np.array_equal(one.device_of_op, other.device_of_op)


def test_the_limits_are_shared(prepared, options):
    limited = budget_beside_order(prepared, options)
    assert (limited.max_trials, limited.budget_seconds) == (180, 54.0)
    other = dataclasses.replace(options, algorithm="etf")
    assert budget_beside_order(prepared, other) is other
    without = dataclasses.replace(prepared, order=None)
    assert budget_beside_order(without, options) is options


def test_the_best_placement_is_ordered_first(prepared, options, monkeypatch):
    limited = budget_beside_order(prepared, options)
    found = find_placement(prepared, limited, None, None, Progress())
    order = ModelOrder()
    tried = []
    monkeypatch.setattr(
        order, "ordered", lambda prepared, placement: tried.append(placement) or one
    )
    one = prepared.order.ordered(prepared, found.best.device_of_op)
    in_order(dataclasses.replace(prepared, order=order), found)
    assert np.array_equal(tried[0], found.best.device_of_op)


def test_a_large_step_is_not_searched_on_for_where_no_time_is_left(prepared, options, monkeypatch):
    before = searched(prepared, options)
    timed = dataclasses.replace(options, max_trials=None)
    monkeypatch.setattr(search_in_order_module, "LARGE_OPS", 10)
    for left in (-1.0, 0.19 * options.budget_seconds):
        assert search_in_order(prepared, timed, before, Progress(), left) is before
    split = dataclasses.replace(prepared, split=object())
    beside = budget_beside_order(split, timed)
    assert beside.budget_seconds == pytest.approx(0.35 * options.budget_seconds)


def test_other_algorithms_find_what_they_find(prepared, options):
    before = searched(prepared, dataclasses.replace(options, max_trials=2))
    other = dataclasses.replace(options, algorithm="etf")
    assert search_in_order(prepared, other, before, Progress()) is before


def test_auto_orders_what_may_be_split_on_devices_that_are_not_here():
    split, plain = (ProblemOptions("m.pb", num_shards=m, order="auto") for m in (4, 1))
    assert wanted_order(split, is_present=False) == "edges"
    assert wanted_order(split, is_present=True) == wanted_order(plain, is_present=False) == "none"
    assert wanted_order(dataclasses.replace(plain, order="edges"), is_present=True) == "edges"


def test_what_is_left_of_the_budget_limits_it(prepared, options, monkeypatch):
    given = []
    monkeypatch.setattr(
        search_in_order_module, "annealed", lambda problem, starts, limits, _: given.append(limits)
    )
    timed = dataclasses.replace(options, max_trials=None, budget_seconds=100.0)
    before = searched(prepared, options)
    monkeypatch.setattr(prepared.order, "seconds", 4.0)
    for left in (math.inf, 17.0, -5.0):
        with pytest.raises(AttributeError):  # the stand-in finds nothing
            search_in_order(prepared, timed, before, Progress(), left)
    assert [limits.budget_seconds for limits in given] == [
        0.375 * 10.0,
        0.375 * (17.0 - 2 * 4.0),
        3.0,
    ]


@pytest.mark.parametrize("gain", [-0.1, 0.0, 0.1])
def test_it_goes_on_without_ranks_where_they_gain_nothing(prepared, options, monkeypatch, gain):
    before = searched(prepared, options)
    best = best_of([*before.candidates, *before.fewer])
    measured = Measurement(best.step_seconds * (1.0 - gain), (0, 0), "simulated")
    found = dataclasses.replace(best, name="new", outcome=measured)
    by_rank = []

    def annealed(prepared, order, starts, limits, seed, ranked):
        by_rank.append((limits.max_trials, ranked))
        return found, types.SimpleNamespace(interrupted=False, num_trials=limits.max_trials)

    monkeypatch.setattr(search_in_order_module, "_annealed", annealed)
    placed = types.SimpleNamespace(rank=None)
    monkeypatch.setattr(prepared.order, "ordered", lambda prepared, placement: placed)
    after = search_in_order(prepared, options, before, Progress())
    assert by_rank == [(8, True), (12, gain > 0.0)]
    assert [each.name for each in after.candidates].count("new") == 2


def test_it_goes_on_by_rank_where_the_best_has_its_order_already(prepared, options, monkeypatch):
    before = searched(prepared, options)
    best = best_of([*before.candidates, *before.fewer])
    by_rank = []

    def annealed(prepared, order, starts, limits, seed, ranked):
        by_rank.append(ranked)
        result = types.SimpleNamespace(interrupted=False, num_trials=limits.max_trials)
        return dataclasses.replace(best, name="new"), result

    placed = types.SimpleNamespace(rank=np.arange(prepared.problem.num_ops))
    monkeypatch.setattr(search_in_order_module, "_annealed", annealed)
    monkeypatch.setattr(prepared.order, "ordered", lambda prepared, placement: placed)
    search_in_order(prepared, options, before, Progress())
    assert by_rank == [True, True]


def test_it_anneals_with_the_ranks_and_the_held_reads_of_the_best_order(prepared):
    problem = prepared.problem
    rank = np.arange(problem.num_ops, dtype=np.int32)[::-1].copy()
    op = int(np.flatnonzero(problem.op_seconds[:, 0] > 0)[0])
    reads = order_edges([op], [problem.num_ops - 1])
    found = types.SimpleNamespace(rank=rank, reads=reads)
    order = types.SimpleNamespace(ordered=lambda prepared, placement: found)
    given, held = search_in_order_module.rank_and_reads(prepared, order, prepared.given)
    assert given is rank
    assert len(held.problem.graph.use_op) == len(problem.graph.use_op) + 1
    found.rank = None
    given, _ = search_in_order_module.rank_and_reads(prepared, order, prepared.given)
    assert np.array_equal(given, by_longest_path(problem, prepared.given))
