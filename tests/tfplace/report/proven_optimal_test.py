"""A placement as quick as the lower bound is said to be proven optimal, others by how much."""

import dataclasses

import pytest

from tests.builders import Machine, chain, fan_out
from tests.tfplace.report.made_up import made_up
from tfplace.bounds.any_split import RangeBound
from tfplace.bounds.lower_bound import lower_bound_seconds
from tfplace.report.html.page import html_report
from tfplace.report.split_facts import any_split_facts


def _report(problem, placement):
    report, explained = made_up(problem, placement)
    bound = lower_bound_seconds(problem)
    return dataclasses.replace(report, lower_bound_seconds=bound), explained


def test_a_chain_on_one_device_is_proven_optimal():
    report, explained = _report(chain(4), [0] * 4)
    assert report.gap == pytest.approx(0.0, abs=1e-8)
    assert report.bound_sentence == (
        "no placement is faster: proven optimal, as the simulator counts"
    )
    assert "proven, as the simulator counts" in html_report(report, explained)


def test_of_a_split_step_it_is_said_which_splits_the_bound_holds_for():
    report, _ = _report(fan_out(4, machine=Machine(2, bandwidth=1e9)), [0] * 6)
    two = dataclasses.replace(report, split={"shards": 2})
    assert two.bound_sentence.startswith("no placement of the step in 2 shards can be faster")
    facts = any_split_facts([RangeBound(1, 1, 5.0), RangeBound(2, 8, 3.0)], 6.0)
    assert facts["lower_bound_seconds"] == 3.0 and facts["gap"] == 1.0
    assert facts["ranges"][1] == {"first": 2, "last": 8, "lower_bound_seconds": 3.0}
    every = dataclasses.replace(two, any_split=facts)
    assert every.bound_sentence == (
        "no placement of the step in any number of shards can be faster than 3 s; this one is "
        "within 100 %"
    )
    assert every.to_json()["any_split"]["gap"] == 1.0
    assert any_split_facts([], 6.0) is None


def test_what_a_placement_may_lose_at_most_is_said():
    # The source, four users one after another, the sink: 6 s; two by two they take 4 at least.
    report, explained = _report(fan_out(4, machine=Machine(2, bandwidth=1e9)), [0] * 6)
    assert report.gap == pytest.approx(0.5)
    assert "no placement can be faster than 4 s" in report.bound_sentence
    assert "at most above the best possible" in html_report(report, explained)
