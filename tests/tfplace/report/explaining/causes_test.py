"""What ops wait for, worked by hand: the last input, the chain behind it, and copies."""

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem, chain, with_executor
from tfplace.report.explaining.explained import explain
from tfplace.report.explaining.waiting import (
    NOTHING,
    OP,
    SENDING,
    TRANSFER,
    Span,
    causes_of,
    chain_before,
    critical_chain,
    device_times,
    longest_wait,
    sentence,
    short_names,
)
from tfplace.simulation.simulated import simulated
from tfplace.simulation.simulator import Simulator


def scheduled(problem, placement):
    schedule = Simulator(problem).schedule(np.array(placement))
    return schedule, causes_of(problem, schedule)


def joined():
    """first and other on device 0, join on device 1: other's tensor is the last to be there."""
    ops = [
        Op("first", 1.0, outputs=(4,)),
        Op("other", 2.0, outputs=(2,)),
        Op("join", 1.0, ("first:0", "other:0")),
        Op("last", 1.0, ("join:0", "^first")),
    ]
    return build_problem(ops, Machine(2, latency=0.5, bandwidth=2.0))


def test_the_last_input_is_what_an_op_waited_for():
    # first's 4 bytes travel from 1 to 3 and are there at 3.5, so does its control edge after
    # them; other's 2 bytes wait for the link until 3 and are there at 4.5.
    schedule, causes = scheduled(joined(), [0, 0, 1, 1])
    assert schedule.transfers.arrival.tolist() == [3.5, 3.5, 4.5]
    assert causes.ready.tolist() == [0.0, 0.0, 4.5, 5.5]
    assert causes.producer.tolist() == [-1, -1, 1, 2]
    assert causes.transfer.tolist() == [-1, -1, 2, -1]


def test_of_inputs_at_one_instant_the_last_tensor_counts():
    ops = [Op("a", 1.0), Op("b", 1.0), Op("c", 1.0, ("b:0", "a:0"))]
    _, causes = scheduled(build_problem(ops, Machine(1, slots=2)), [0, 0, 0])
    assert (causes.ready[2], causes.producer[2], causes.transfer[2]) == (1.0, 1, -1)


def test_the_chain_that_ends_the_step_leads_back_to_its_start():
    schedule, causes = scheduled(joined(), [0, 0, 1, 1])
    assert critical_chain(causes, schedule) == [
        Span(OP, 0, -1, 0.0, 1.0),  # other is ready, and its device runs first
        Span(OP, 0, 1, 1.0, 3.0),
        Span(TRANSFER, 0, 2, 3.0, 4.5),
        Span(OP, 1, 2, 4.5, 5.5),
        Span(OP, 1, 3, 5.5, 6.5),
    ]


def test_a_chain_is_cut_where_it_need_not_go_on():
    schedule, causes = scheduled(joined(), [0, 0, 1, 1])
    assert list(chain_before(causes, schedule, 2, 2.5)) == [
        Span(TRANSFER, 0, 2, 3.0, 4.5),
        Span(OP, 0, 1, 2.5, 3.0),
    ]
    assert list(chain_before(causes, schedule, 0, 0.0)) == []


def test_a_device_that_copies_waits_for_its_own_sends():
    # a's tensor takes a second of its device to send: b, ready at 1, starts at 2. It is there at
    # 3, when user starts.
    ops = [Op("a", 1.0, outputs=(1,)), Op("b", 1.0, ("^a",)), Op("user", 1.0, ("a:0",))]
    machine = Machine(2, latency=0.0, bandwidth=1.0, types=("CPU", "CPU"))
    problem = with_executor(build_problem(ops, machine), send=(1.0, 0.0))
    schedule, causes = scheduled(problem, [0, 0, 1])
    assert schedule.op_start.tolist()[1] == 2.0
    first, second = device_times(problem, schedule, causes)
    assert first.waits == {(SENDING, 0): 1.0, (NOTHING, -1): 1.0}
    assert sentence(first, 0, schedule.makespan, ["one", "two"]) == (
        "one computes 50 % of the step; it waits 25 % for its own sends; for the last 25 % it has "
        "nothing left to do"
    )
    assert longest_wait([first, second], schedule.makespan)[:3] == (1, TRANSFER, 0)
    # In the chain that ends the step it is work of the device like any other.
    assert {span.kind for span in critical_chain(causes, schedule)} <= {OP, TRANSFER}


def test_short_waits_are_summed_up_in_the_sentence():
    ops = [Op("long", 97.0), Op("a", 1.0), Op("b", 1.0, ("a:0",)), Op("c", 2.0, ("^long",))]
    problem = build_problem(ops, Machine(4))
    schedule, causes = scheduled(problem, [0, 1, 2, 2])
    times = device_times(problem, schedule, causes)
    names = short_names(problem.device_names)
    assert [sentence(time, d, schedule.makespan, names) for d, time in enumerate(times)] == [
        "CPU:0 computes 98 % of the step; for the last 2 % it has nothing left to do",
        "GPU:0 computes 1 % of the step; for the last 99 % it has nothing left to do",
        "GPU:1 computes 3 % of the step; it waits 96 % for ops on CPU:0 and 1 % for other things",
        "GPU:2 computes nothing",
    ]
    assert longest_wait(times, schedule.makespan) == (2, OP, 0, 95.0)
    assert longest_wait(times[:1], schedule.makespan) is None


def test_what_the_report_says_of_waiting():
    placed = simulated(
        chain(2, size=4, machine=Machine(latency=0.5, bandwidth=2.0)), np.array([0, 1])
    )
    explained = explain(placed)
    assert explained.schedule is placed.schedule and explained.names == ["CPU:0", "GPU:0"]
    assert explained.waiting() == [
        {
            "device": "/device:CPU:0",
            "computing_seconds": 1.0,
            "waits": [{"for": "nothing", "device": None, "seconds": 3.5}],
            "sentence": explained.sentences()[0],
        },
        {
            "device": "/device:GPU:0",
            "computing_seconds": 1.0,
            "waits": [
                {"for": "transfer", "device": "/device:CPU:0", "seconds": 2.5},
                {"for": "op", "device": "/device:CPU:0", "seconds": 1.0},
            ],
            "sentence": explained.sentences()[1],
        },
    ]


def test_what_never_ends_can_not_be_explained():
    problem = build_problem([Op("a", (1.0, np.inf))])
    with pytest.raises(ValueError, match=r"an op never ends .op 'a'"):
        explain(simulated(problem, np.array([1])))
