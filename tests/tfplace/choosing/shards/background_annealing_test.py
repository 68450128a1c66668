"""The long search of the unsplit step: beside other work, in pieces, to its end."""

import os
import signal
import threading

import numpy as np
import pytest

from graphs.errors import UsageError
from tests.builders import random_graph
from tfplace.choosing.shards.background_annealing import LongSearch
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, search
from tfplace.simulation.evaluator import SimulatingEvaluator


@pytest.fixture
def problem():
    return random_graph(60)


def _begun(problem, left):
    instance = Instance(problem, np.ones(problem.num_ops, dtype=np.int32))
    return LongSearch(instance, 1, None, lambda: left)


@pytest.fixture
def long_search(problem):
    return _begun(problem, Limits(1000.0))


def _times(count):
    """A condition that is met when it is asked so often."""
    asked = iter(range(count))
    return lambda: next(asked, None) is None


def test_it_anneals_while_the_work_is_done_and_returns_what_that_did(long_search):
    searching = threading.Event()
    allow = long_search._policy.allow

    def seen(*left):
        allow(*left)
        searching.set()

    long_search._policy.allow = seen
    answer, found = long_search.beside(lambda: searching.wait(60.0))
    assert answer is True and found.num_trials >= 0 and not found.interrupted


def test_after_a_signal_nobody_waits_for_the_work(long_search):
    ends = threading.Event()
    long_search._policy.allow = lambda *left: os.kill(os.getpid(), signal.SIGTERM)
    answer, found = long_search.beside(ends.wait)
    ends.set()
    assert answer is None and found.interrupted


def test_work_that_takes_longer_than_it_may_is_not_waited_for(long_search):
    ends = threading.Event()
    answer, found = long_search.beside(ends.wait, 0.0)
    ends.set()
    assert answer is None and not found.interrupted


def test_what_the_work_raises_is_raised_here(long_search):
    def work():
        raise UsageError("it can't be split so")

    with pytest.raises(UsageError, match="can't be split"):
        long_search.beside(work)


def test_a_short_search_may_be_its_beginning(long_search, problem):
    policy = long_search._policy
    stage = long_search.first_stage()
    found = search([stage], SimulatingEvaluator(problem), Limits(100.0, 300))
    assert found.num_trials >= 300 and policy._population is not None
    assert policy._budget.seconds == 1000.0 and policy._budget.trials is None


def test_pieces_are_one_annealing(long_search):
    long_search.until(_times(12))
    policy = long_search._policy
    population, done = policy._population, policy._share_used()
    second = long_search.until(_times(3), in_turn=True)
    assert second.num_trials > 0
    (stage,) = long_search.last_stages([])
    assert stage.start(None) is policy and policy._population is population
    policy.allow(20.0, None)  # what is left is for what is left of it
    assert policy._share_used() >= done
    before = policy._share_used()
    policy.allow(10.0, None)
    assert policy._share_used() == pytest.approx((1.0 + before) / 2)
