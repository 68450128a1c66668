"""Tests of the message where nothing fits."""

from __future__ import annotations

import numpy as np

from graphs.problem import Problem
from tests.builders import Machine, Op, build_problem
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.memory_limit import Advice, why_nothing_fits
from tfplace.simulation.evaluator import SimulatingEvaluator

KIB = 1024


def _problem(memory: int) -> Problem:
    ops = [
        Op("weights", outputs=(0,), persistent=4 * KIB),
        Op("forward", inputs=("weights:0",), outputs=(6 * KIB,)),
        Op("loss", inputs=("forward:0",), outputs=(2 * KIB,), temp=KIB),
        Op("backward", inputs=("forward:0", "loss:0"), outputs=()),
    ]
    return build_problem(ops, Machine(2, memory=memory))


def _candidate(problem: Problem, name: str, placement: list[int]) -> Candidate:
    device_of_op = np.array(placement, dtype=np.int32)
    outcome = SimulatingEvaluator(problem, 1).evaluate(device_of_op[None])[0]
    return Candidate(name, device_of_op, outcome)


def test_names_what_lacks_what_is_alive_and_what_helps() -> None:
    problem = _problem(10 * KIB)
    single = _candidate(problem, "single", [1, 1, 1, 1])
    assert why_nothing_fits([single], problem) == (
        "searching for a placement that fits the devices' memory: found none; /device:GPU:0 lacks "
        "3 KiB even under the single placement, the nearest: its peak is 13 KiB of 10 KiB usable; "
        "alive then: forward:0 6 KiB, variable weights 4 KiB, loss:0 2 KiB, temporary of loss "
        "1 KiB; wanted every device below its memory minus --memory_reserve (0); use a "
        "--batch_size of at most about 66 % of this one (taking all but variables to shrink with "
        "it), at least 3 such devices, or 13 KiB of memory on /device:GPU:0"
    )


def test_shards_one_after_another_are_named_where_they_would_fit() -> None:
    ops = [
        Op("weights", outputs=(0,), persistent=4 * KIB, type="VarHandleOp"),
        Op("forward", inputs=("weights:0",), outputs=(12 * KIB,)),
        Op("backward", inputs=("forward:0",), outputs=(3 * KIB,)),
        Op("update", inputs=("weights:0", "backward:0"), type="ResourceApplyGradientDescent"),
    ]
    problem = build_problem(ops, Machine(2, memory=11 * KIB))
    message = why_nothing_fits([_candidate(problem, "single", [1, 1, 1, 1])], problem)
    assert (
        "use --shards=4 --order=edges, which works on 4 parts of the batch one after another "
        "(about 10.8 KiB: 4 KiB of variables, 3 KiB of gradients, 3.75 KiB of one part), a "
        "--batch_size of"
    ) in message
    problem = build_problem(ops, Machine(2, memory=7 * KIB))
    assert "--shards" not in why_nothing_fits([_candidate(problem, "single", [1] * 4)], problem)


def test_takes_the_placement_that_lacks_least() -> None:
    problem = _problem(7 * KIB)
    single = _candidate(problem, "single", [1, 1, 1, 1])
    split = _candidate(problem, "etf", [0, 1, 1, 1])
    message = why_nothing_fits([single, split], problem)
    assert "/device:GPU:0 lacks 2 KiB even under the etf placement" in message


def test_variables_that_are_too_large_ask_for_a_smaller_model() -> None:
    problem = build_problem([Op("weights", persistent=9 * KIB)], Machine(2, memory=8 * KIB))
    message = why_nothing_fits([_candidate(problem, "single", [1])], problem)
    assert "use a smaller model (variables and constants alone take 9 KiB" in message


def test_other_reasons_are_told_as_they_are() -> None:
    problem = build_problem([Op("a", (1.0, np.inf))])
    message = why_nothing_fits([_candidate(problem, "given", [1])], problem)
    assert "given: op 'a' (Op) has no kernel on /device:GPU:0" in message


def test_more_devices_are_no_help_to_one_op_that_fits_none() -> None:
    ops = [Op("weights", outputs=(0,), persistent=9 * KIB), Op("use", inputs=("weights:0",))]
    problem = build_problem(ops, Machine(2, memory=7 * KIB))
    candidates = [_candidate(problem, "single", [1, 1])]
    message = why_nothing_fits(candidates, problem)
    assert "such devices" not in message
    assert message.endswith(
        "use a smaller model (variables and constants alone take 9 KiB, which no batch size "
        "changes), or 9 KiB of memory on /device:GPU:0"
    )
    of_arrays = why_nothing_fits(candidates, problem, advice=Advice(is_model=False))
    assert of_arrays.endswith("minus memory_reserve (0); use 9 KiB of memory on /device:GPU:0")
