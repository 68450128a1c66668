"""Tests of the advice."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tfplace.report.advice import (
    DataParallel,
    SingleRun,
    advice,
    batch_size_of,
    data_parallel,
    gradient_bytes,
    grows_with_batch,
)


def _training_step(batch: int = 8, memory: int = 10**6) -> Problem:
    """x [8, 3] times w [3, 5]; the gradient has w's shape."""
    ops = [
        Op("x", 0.0, outputs=(96,)),
        Op("w", 0.0, outputs=(60,), alloc=(0,), persistent=60, type="ReadVariableOp"),
        Op("forward", 4.0, ("x:0", "w:0"), (160,), type="MatMul"),
        Op("gradient", 4.0, ("x:0", "forward:0"), (60,), type="MatMul"),
        Op("scaled", 1.0, ("gradient:0",), (60,), type="Mul"),
        Op("update", 1.0, ("scaled:0", "w:0"), (), type="ResourceApplyGradientDescent"),
    ]
    machine = Machine(3, latency=0.1, bandwidth=60.0, memory=memory)
    problem = build_problem(ops, machine)
    shape = np.full((5, 4), -1, dtype=np.int32)
    shape[:, :2] = [(batch, 3), (3, 5), (batch, 5), (3, 5), (3, 5)]
    graph = dataclasses.replace(problem.graph, tensor_shape=shape)
    return dataclasses.replace(problem, graph=graph)


def test_what_has_the_batch_in_it_grows() -> None:
    grows = grows_with_batch(_training_step().graph, 8)
    assert grows.tolist() == [True, False, True, True, False, False]


def test_gradients_are_what_updates_take() -> None:
    assert gradient_bytes(_training_step().graph) == 60


def test_data_parallel_adds_compute_and_the_ring() -> None:
    # 8 of 10 seconds halve; the ring sends half of 60 bytes twice, at 0.1 s each.
    found = data_parallel(_training_step(), 8, 1000, SingleRun(10.0, 260))
    assert found == DataParallel(
        num_replicas=2,
        batch_size=8,
        step_seconds=pytest.approx(7.2),
        compute_seconds=pytest.approx(6.0),
        all_reduce_seconds=pytest.approx(1.2),
        gradient_bytes=60,
        batch_share=pytest.approx(0.8),
        bytes_per_replica=160,
        fits=True,
    )


def test_replicas_that_do_not_fit_say_so() -> None:
    found = data_parallel(_training_step(memory=100), 8, 1000, SingleRun(10.0, 260))
    assert found is not None
    assert not found.fits
    assert advice(found, "placed", 8.0, 5.0).sentences == [
        "plain data parallelism over 2 devices would not fit: a replica needs 160 B, all "
        "variables among them"
    ]


def test_one_working_device_has_no_replicas() -> None:
    problem = build_problem([Op("a")], Machine(2))
    assert data_parallel(problem, 8, 0, SingleRun(1.0, 0)) is None


def test_data_parallelism_is_advised_where_it_is_faster() -> None:
    found = data_parallel(_training_step(), 8, 1000, SingleRun(10.0, 260))
    said = advice(found, "placed", 8.0, 5.0)
    assert said.sentences == [
        "plain data parallelism over 2 devices would be faster than any placement found: about "
        "7.2 s a step at the same batch of 8, 6 s of compute, taking 80 % of the work to shrink "
        "in proportion to the batch, and 1.2 s to sum 60 B of gradients"
    ]
    assert said.to_json()["data_parallel"]["num_replicas"] == 2
    assert (
        "than any placement of this graph can be" in advice(found, "placed", 8.0, 7.5).sentences[0]
    )
    assert advice(found, "placed", 7.0, 5.0).sentences == [
        "the placement written is predicted to be faster (7 s a step) than plain data parallelism "
        "over 2 devices, which would take about 7.2 s a step"
    ]


def test_one_device_is_said_to_be_best() -> None:
    assert advice(None, "kept_single", 2.0, 1.5).to_json() == {
        "sentences": [
            "one device is best for this graph: no placement over several that was found beats "
            "its 2 s, and none can take less than 1.5 s"
        ],
        "data_parallel": None,
    }


def test_batch_size_is_the_leading_dimension_of_most_feeds() -> None:
    assert batch_size_of([(64, 40), (64,), (40, 7), ()]) == 64
    assert batch_size_of([()]) == 0
