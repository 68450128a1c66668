"""Tests of tfplace.algorithms.annealing.plan."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.algorithms.annealing.plan import Budget, Round, RunSlot, fullest_plan, plan_of, plans

ROUNDS = [Round(4, is_fused=True), Round(2, is_fused=True), Round(1, weight=2.0)]


def test_slots_share_out_the_rounds():
    plan = plan_of(ROUNDS, 2)
    assert plan.slots == [
        RunSlot(0, 0, 0.0, 0.125),
        RunSlot(0, 1, 0.125, 0.25),
        RunSlot(1, 0, 0.25, 0.5),
        RunSlot(2, 0, 0.5, 1.0),
    ]
    assert [plan.slot_number(share) for share in (0.0, 0.124, 0.125, 0.5, 0.99, 1.0, 1.2)] == [
        0, 0, 1, 3, 3, 3, 3
    ]  # fmt: skip
    assert [plan.round_of(number).num_candidates for number in range(4)] == [4, 4, 2, 1]


@given(
    rounds=st.lists(
        st.builds(Round, st.integers(1, 20), st.booleans(), st.floats(0.1, 9.0)),
        min_size=1,
        max_size=5,
    ),
    num_chains=st.integers(1, 9),
)
def test_slots_lie_end_to_end_and_last_as_long_as_their_rounds(rounds, num_chains):
    plan = plan_of(rounds, num_chains)
    assert plan.slots[0].first == 0.0 and plan.slots[-1].last == 1.0
    for slot, following in zip(plan.slots, plan.slots[1:], strict=False):
        assert slot.last == following.first
    whole = sum(each.weight for each in rounds)
    for number, each in enumerate(rounds):
        slots = [slot for slot in plan.slots if slot.round_number == number]
        assert [slot.number for slot in slots] == list(range(len(slots)))
        # Enough turns for each candidate, and none too many.
        assert (len(slots) - 1) * num_chains < each.num_candidates <= len(slots) * num_chains
        lengths = [slot.last - slot.first for slot in slots]
        assert sum(lengths) == pytest.approx(each.weight / whole)
        assert lengths == pytest.approx([lengths[0]] * len(lengths))


def test_plans_get_shorter():
    kinds = [[(each.num_candidates, each.is_fused) for each in plan.rounds]
             for plan in plans(ROUNDS, 2)]  # fmt: skip
    assert kinds == [
        [(4, True), (2, True), (1, False)],
        [(2, True), (1, True), (1, False)],
        [(1, True), (1, True), (1, False)],
        [(1, True), (1, False)],
        [(1, True)],
    ]
    assert plans([Round(2), Round(1)], 2)[-1].rounds == (Round(1),)


def test_the_fullest_plan_whose_slots_are_long_enough_is_taken():
    def taken(seconds, least_fused=1.0):
        candidates = plans(ROUNDS, 2)
        number = fullest_plan(candidates, seconds, {True: least_fused, False: 2.0})
        return [each.num_candidates for each in candidates[number].rounds]

    assert taken(8.0) == [4, 2, 1]
    assert taken(7.9) == [2, 1, 1]
    assert taken(4.0) == [2, 1, 1]
    assert taken(4.0, least_fused=1.1) == [1, 1]  # three rounds would be 1, 1 and 2 s
    assert taken(3.9) == [1]
    assert taken(0.0) == [1]


@pytest.mark.parametrize(
    ("budget", "left", "share"),
    [
        (Budget(10.0), Budget(4.0), 0.6),
        (Budget(10.0, 200), Budget(0.0, 150), 0.25),
        (Budget(math.inf, 200), Budget(math.inf, 0), 1.0),
        # Given more when it went on, and limited otherwise than at first.
        (Budget(10.0, 100), Budget(10.0, 150), 0.0),
        (Budget(10.0, 100), Budget(5.0), 0.5),
        (Budget(0.0), Budget(0.0), 1.0),
    ],
)
def test_trials_decide_where_they_are_limited_else_seconds(budget, left, share):
    assert budget.share_used(left) == pytest.approx(share)


def test_a_budget_has_a_limit_or_not():
    assert [b.has_limit for b in (Budget(), Budget(1.0), Budget(trials=3))] == [False, True, True]


def test_a_search_that_goes_on_has_used_up_as_much_as_before():
    budget = Budget(30.0, 600).as_rest_after(0.4)
    assert budget == Budget(50.0, 1000)
    assert budget.share_used(Budget(15.0, 300)) == pytest.approx(0.7)
    assert Budget(1.0).as_rest_after(1.2).share_used(Budget(1.0)) == pytest.approx(0.99)
