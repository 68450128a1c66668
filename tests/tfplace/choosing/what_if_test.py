"""The estimate of plain data parallelism, worked by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tfplace.choosing.what_if import (
    DataParallel,
    batch_size_of,
    data_parallel,
    gradient_bytes,
    grows_with_batch,
)


def _training_step(batch: int = 8, memory: int = 10**6) -> Problem:
    """x [8, 3] times w [3, 5]; the gradient has w's shape. A CPU and two GPUs."""
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
    # One GPU takes 10 s. 8 of them halve; the ring sends half of 60 bytes twice, at 0.1 s each.
    # While the gradient is computed, one GPU holds w, x, forward and gradient: 60 + 96 + 160 + 60;
    # a replica holds half of all but w.
    assert data_parallel(_training_step(), 8, 1000) == DataParallel(
        num_replicas=2,
        batch_size=8,
        step_seconds=pytest.approx(7.2),
        compute_seconds=pytest.approx(6.0),
        all_reduce_seconds=pytest.approx(1.2),
        gradient_bytes=60,
        batch_share=pytest.approx(0.8),
        bytes_per_replica=218,
        fits=True,
    )


def test_no_more_gradients_are_summed_than_training_changes() -> None:
    estimate = data_parallel(_training_step(), 8, 30)
    assert estimate is not None and estimate.gradient_bytes == 30
    assert estimate.all_reduce_seconds == pytest.approx(2 * (0.1 + 15 / 60))


@pytest.mark.parametrize(("memory", "fits"), [(217, False), (218, True)])
def test_a_replica_fits_or_not(memory: int, fits: bool) -> None:
    estimate = data_parallel(_training_step(memory=memory), 8, 1000)
    assert estimate is not None and estimate.fits is fits


def test_one_working_device_or_a_batch_of_one_has_no_replicas() -> None:
    assert data_parallel(build_problem([Op("a")], Machine(2)), 8, 0) is None
    assert data_parallel(_training_step(), 1, 1000) is None


def test_batch_size_is_the_leading_dimension_of_most_feeds() -> None:
    assert batch_size_of([(64, 40), (64,), (40, 7), ()]) == 64
    assert batch_size_of([(2,), (3,)]) == 3
    assert batch_size_of([()]) == 0
