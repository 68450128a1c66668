"""Runs that are prepared beside something else, before a measurement asks for them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from graphs.errors import ClusterError
from graphs.problem import Infeasible
from tfplace.measurement.held_runs import HeldRuns, keys_of
from tfplace.measurement.training_run import PreparedRun, PrepareRequest, TrainingRun

RUN = TrainingRun({}, ["loss:0"])
PREPARED = PreparedRun("tf.function", {})


class Graph:
    """A graph of one byte."""

    def __init__(self, name: str) -> None:
        self.name = name

    def SerializeToString(self) -> bytes:
        return self.name.encode()


class Process:
    """Answers once it is let; notes which thread asked."""

    def __init__(self, answer: Any = PREPARED) -> None:
        self.alive, self.may_answer = True, threading.Event()
        self.asked: list[bytes] = []
        self.threads: set[int] = set()
        self._answer = answer

    def request(self, request: PrepareRequest, timeout_seconds: float) -> Any:
        assert self.may_answer.wait(10.0)
        self.asked.append(request.graph_def)
        self.threads.add(threading.get_ident())
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def __exit__(self, *error: object) -> None:
        self.alive = False


def key(name: str) -> Any:
    return keys_of({"": name.encode()}, {"": RUN})[""]


def test_runs_are_prepared_one_after_another_in_one_thread_that_lasts() -> None:
    process: Any = Process()
    with HeldRuns(process) as held:
        for name in ("a", "b", "a"):
            held.begin(name, lambda name=name: Graph(name), RUN, 0)
        assert held.begun == {"a", "b"} and not process.asked
        process.may_answer.set()
        held.wait()
        assert process.asked == [b"a", b"b"]
        assert held.known(key("a"), "auto") is PREPARED and held.known(key("c"), "auto") is None
        held.begin("c", lambda: Graph("c"), RUN, 0)
        held.wait()
    assert len(process.threads) == 1 and threading.get_ident() not in process.threads


def test_no_more_are_begun_than_fit() -> None:
    process: Any = Process()
    process.may_answer.set()
    with HeldRuns(process, capacity=1) as held:
        for name in ("a", "b"):
            held.begin(name, lambda name=name: Graph(name), RUN, 0)
        held.wait()
    assert process.asked == [b"a"]


@pytest.mark.parametrize("answer", [Infeasible("memory", "too large"), ClusterError("no ports")])
def test_what_fails_ahead_is_left_to_the_measurement(answer: Any) -> None:
    process: Any = Process(answer)
    process.may_answer.set()
    with HeldRuns(process) as held:
        held.begin("a", lambda: Graph("a"), RUN, 0)
        held.wait()
        assert held.known(key("a"), "auto") is None
