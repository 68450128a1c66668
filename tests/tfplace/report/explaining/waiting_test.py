import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import Machine, Op, build_problem, chain, random_executor, random_problem
from tfplace.report.explaining.waiting import (
    NOTHING,
    OP,
    SENDING,
    TRANSFER,
    causes_of,
    chain_shares,
    critical_chain,
    device_times,
    longest_wait,
    sentence,
    short_names,
)
from tfplace.simulation.simulator import Simulator


def explained(problem, placement):
    schedule = Simulator(problem).schedule(np.array(placement))
    causes = causes_of(problem, schedule)
    return schedule, causes, device_times(problem, schedule, causes)


def test_a_chain_over_two_devices_waits_for_the_op_then_for_the_transfer_then_for_nothing():
    problem = chain(2, size=4, machine=Machine(latency=0.5, bandwidth=2.0))
    schedule, causes, (first, second) = explained(problem, [0, 1])
    assert schedule.makespan == 4.5
    assert (first.computing_seconds, first.waits) == (1.0, {(NOTHING, -1): 3.5})
    assert (second.computing_seconds, second.waits) == (1.0, {(TRANSFER, 0): 2.5, (OP, 0): 1.0})
    (gap,) = second.gaps
    assert (gap.start, gap.end) == (0.0, 3.5)
    assert [(s.kind, s.device, s.item, s.start, s.end) for s in gap.spans] == [
        (OP, 0, 0, 0.0, 1.0),
        (TRANSFER, 0, 0, 1.0, 3.5),
    ]
    assert chain_shares(schedule, causes) == {(TRANSFER, 0): 2.5, (OP, 0): 1.0, (OP, 1): 1.0}
    names = short_names(problem.device_names)
    assert sentence(second, 1, 4.5, names) == (
        "GPU:0 computes 22 % of the step; it waits 56 % for transfers from CPU:0 and 22 % for ops "
        "on CPU:0"
    )
    assert sentence(first, 0, 4.5, names) == (
        "CPU:0 computes 22 % of the step; for the last 78 % it has nothing left to do"
    )
    assert longest_wait([first, second], 4.5) == (1, TRANSFER, 0, 2.5)


def test_a_wait_is_for_the_device_at_the_root_of_it():
    # c on device 2 needs b on device 1, which needs a on device 0 and also queues behind busy.
    ops = [Op("a", 3.0), Op("busy", 5.0), Op("b", 1.0, ("a:0",)), Op("c", 1.0, ("b:0",))]
    problem = build_problem(ops, Machine(3, latency=1.0, bandwidth=float("inf")))
    _, _, times = explained(problem, [0, 1, 1, 2])
    # b is ready at 4 and starts at 5, when busy ends; c starts at 7.
    (gap,) = times[2].gaps
    assert [(s.kind, s.device, s.item, s.start, s.end) for s in gap.spans] == [
        (OP, 0, 0, 0.0, 3.0),
        (TRANSFER, 0, 0, 3.0, 4.0),
        (OP, 1, -1, 4.0, 5.0),
        (OP, 1, 2, 5.0, 6.0),
        (TRANSFER, 1, 1, 6.0, 7.0),
    ]


def test_a_device_with_several_slots_is_idle_only_while_none_is_used():
    ops = [Op("a", 3.0), Op("b", 1.0), Op("c", 1.0, ("^a",)), Op("d", 2.0)]
    _, _, (only,) = explained(build_problem(ops, Machine(1, slots=2)), [0, 0, 0, 0])
    assert (only.computing_seconds, only.gaps) == (4.0, [])


def test_ops_of_no_time_are_no_work_and_a_device_without_ops_has_nothing_to_do():
    problem = build_problem([Op("a", 0.0), Op("b", 2.0)], Machine(2))
    schedule, _, (first, second) = explained(problem, [0, 1])
    names = short_names(problem.device_names)
    assert first.waits == {(NOTHING, -1): 2.0}
    assert sentence(first, 0, schedule.makespan, names) == "CPU:0 computes nothing"
    assert sentence(second, 1, schedule.makespan, names) == "GPU:0 computes 100 % of the step"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_every_moment_of_every_device_is_accounted_for_once(seed, has_executor):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    if has_executor:
        problem = random_executor(rng, problem)
    placement = rng.integers(0, problem.num_devices, problem.num_ops)
    schedule, causes, times = explained(problem, placement)
    for time in times:
        total = time.computing_seconds + sum(time.waits.values())
        assert total == pytest.approx(schedule.makespan)
        for gap in time.gaps:
            edges = [gap.start, *(s.end for s in gap.spans)]
            assert edges[-1] == gap.end
            assert [s.start for s in gap.spans] == edges[:-1]
        assert has_executor or not any(kind == SENDING for kind, _ in time.waits)
    spans = critical_chain(causes, schedule)
    assert sum(s.end - s.start for s in spans) == pytest.approx(schedule.makespan)


def test_short_names_stay_distinct():
    assert short_names(["/device:CPU:0", "/device:GPU:1"]) == ["CPU:0", "GPU:1"]
    tasks = ["/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0"]
    assert short_names(tasks) == ["worker:0 CPU:0", "worker:1 CPU:0"]
    assert short_names(["/device:GPU:0", "/replica:1/device:GPU:0"]) == [
        "/device:GPU:0",
        "/replica:1/device:GPU:0",
    ]
