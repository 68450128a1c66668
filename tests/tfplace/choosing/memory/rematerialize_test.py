"""What is dropped and made again to keep below a limit, on steps worked out by hand and random."""

import dataclasses

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem, random_problem
from tests.reference_simulator import reference_run
from tfplace.choosing.memory.fit import fitted, with_copies, with_their_copies
from tfplace.choosing.memory.rematerialize import (
    ORIGINAL,
    MayChange,
    NoRoomError,
    Weights,
    rematerialized,
)
from tfplace.simulation.simulated import simulated

SIZE = 100


def all_may(problem, repeat=None):
    every = np.ones(problem.num_ops, dtype=bool)
    repeat = every if repeat is None else repeat
    return MayChange(repeat, every, np.zeros(problem.num_ops, dtype=np.int32))


def there_and_back(length, machine=None):
    """Each op's output is read by the next, and once more on the way back, last first."""
    ops = [Op("in", outputs=(SIZE,))]
    for i in range(length):
        ops.append(Op(f"f{i}", inputs=(f"{ops[-1].name}:0",), outputs=(SIZE,)))
    ops.append(Op("loss", inputs=(f"{ops[-1].name}:0",), outputs=(SIZE,)))
    for i in reversed(range(length)):
        ops.append(Op(f"b{i}", inputs=(f"{ops[-1].name}:0", f"f{i}:0"), outputs=(SIZE,)))
    return build_problem(ops, machine or Machine(1, types=["GPU"]))


def limited(problem, limit):
    return dataclasses.replace(
        problem, device_memory_bytes=np.full(problem.num_devices, limit, dtype=np.int64)
    )


def planned(problem, limit, may=None):
    placement = np.zeros(problem.num_ops, dtype=np.int32)
    schedule = simulated(problem, placement).schedule
    plan = rematerialized(problem, schedule, 0, limit, may or all_may(problem))
    edged = with_copies(problem, plan)
    return plan, simulated(edged.problem, edged.renumbered(with_their_copies(placement, plan)))


def test_nothing_runs_again_where_all_fits():
    problem = there_and_back(6)
    plan, placed = planned(problem, 10**9)
    assert not plan.copies
    assert not plan.reads
    assert placed.outcome == simulated(problem, np.zeros(problem.num_ops, np.int32)).outcome


@pytest.mark.parametrize(("share", "most_again"), [(0.75, 6), (0.5, 16), (0.4, 30)])
def test_a_chain_of_sixteen_is_held_in_a_part_of_its_peak(share, most_again):
    problem = there_and_back(16)
    whole = simulated(problem, np.zeros(problem.num_ops, dtype=np.int32))
    peak = whole.schedule.peak_bytes[0]
    plan, placed = planned(problem, share * peak)
    assert placed.schedule.peak_bytes[0] <= share * peak
    assert 0 < len(plan.copies) <= most_again
    assert placed.schedule.makespan == whole.schedule.makespan + len(plan.copies)


def test_the_cheapest_to_make_again_is_dropped():
    seconds = {"dear": 5.0, "cheap": 0.1}
    ops = [
        Op("in", outputs=(1,), shares=("in:0",)),
        *(Op(name, seconds[name], ("in:0",), (SIZE,)) for name in seconds),
        Op("large", inputs=("dear:0", "cheap:0"), outputs=(SIZE,)),
        Op("middle", inputs=("large:0",), outputs=(SIZE,)),
        Op("end", inputs=("middle:0", "dear:0", "cheap:0")),
    ]
    problem = build_problem(ops, Machine(1, types=["GPU"]))
    plan, _ = planned(problem, 3 * SIZE + 1)
    assert [problem.graph.op_names[copy.op] for copy in plan.copies] == ["cheap"]
    assert plan.copies[0].after == 4  # not before the middle has run
    assert plan.reads == {5: {2: 0}}


def test_what_may_not_run_twice_does_not():
    problem = there_and_back(8)
    repeat = np.array([name != "f3" for name in problem.graph.op_names])
    peak = simulated(problem, np.zeros(problem.num_ops, np.int32)).schedule.peak_bytes[0]
    plan, _ = planned(problem, 0.6 * peak, all_may(problem, repeat))
    assert plan.copies
    assert all(problem.graph.op_names[copy.op] != "f3" for copy in plan.copies)
    with pytest.raises(NoRoomError):
        planned(problem, 2 * SIZE)


def test_a_variable_and_what_was_fed_stay():
    ops = [
        Op("variable", outputs=(0,), persistent=SIZE),
        Op("read", inputs=("variable:0",), outputs=(SIZE,), alloc=(0,), type="ReadVariableOp"),
        Op("a", inputs=("read:0",), outputs=(SIZE,)),
        Op("b", inputs=("a:0",), outputs=(SIZE,)),
        Op("c", inputs=("b:0", "a:0"), outputs=(SIZE,)),
    ]
    problem = build_problem(ops, Machine(1, types=["GPU"]))
    repeat = np.array([op.name in "abc" for op in ops])
    with pytest.raises(NoRoomError):  # c needs both, and the variable is there
        planned(problem, 3 * SIZE, all_may(problem, repeat))
    plan, _ = planned(problem, 4 * SIZE, all_may(problem, repeat))
    assert not plan.copies


def test_a_constant_is_there_for_each_copy_though_the_first_may_seem_to_take_its_buffer():
    ops = [
        Op("one", outputs=(SIZE,), alloc=(0,)),
        Op("in", outputs=(1,)),
        Op("a", inputs=("in:0", "one:0"), outputs=(SIZE,), shares=("?one:0",)),
        Op("b", inputs=("in:0", "one:0", "^a"), outputs=(SIZE,), shares=("?one:0",)),
        Op("middle", inputs=("in:0", "^b"), outputs=(3 * SIZE,)),
        Op("next", inputs=("middle:0",), outputs=(1,)),
        Op("end", inputs=("next:0", "a:0", "b:0", "in:0"), outputs=(1,)),
    ]
    problem = build_problem(ops, Machine(1, types=["GPU"]))
    may = all_may(problem, repeat=np.array([op.name in "ab" for op in ops]))
    plan, placed = planned(problem, 3 * SIZE + 2, may)
    assert {problem.graph.op_names[copy.op] for copy in plan.copies} == {"a", "b"}
    assert placed.schedule.peak_bytes[0] <= 3 * SIZE + 2


def test_a_shape_is_kept_since_it_takes_nothing_and_its_tensor_may_be_gone():
    large = 10**7
    ops = [
        Op("in", outputs=(large,)),
        Op("x", inputs=("in:0",), outputs=(large,)),
        Op("shape", 0.0, inputs=("x:0",), outputs=(8,)),
        Op("middle", inputs=("in:0", "^shape"), outputs=(2 * large,)),
        Op("next", inputs=("middle:0", "in:0"), outputs=(8,)),
        Op("end", inputs=("next:0", "shape:0"), outputs=(8,)),
        Op("use", inputs=("end:0", "x:0", "in:0"), outputs=(8,)),
    ]
    problem = build_problem(ops, Machine(1, types=["GPU"]))
    may = all_may(problem, repeat=np.array([op.name in ("x", "shape") for op in ops]))
    plan, _ = planned(problem, 3 * large + 100, may)
    assert [problem.graph.op_names[copy.op] for copy in plan.copies] == ["x"]
    assert plan.copies[0].before == 6  # for the last op, not for its shape


def on_a_host(bandwidth, length=16):
    """A chain there and back on a GPU with a host, its placement, and what may wait there."""
    machine = Machine(2, bandwidth=bandwidth)
    problem = there_and_back(length, machine)
    may = all_may(problem)
    may = dataclasses.replace(may, send=np.ones(problem.graph.num_tensors, dtype=bool))
    return problem, np.ones(problem.num_ops, dtype=np.int32), may


def test_what_is_needed_late_waits_on_the_host_and_is_back_in_time():
    problem, placement, may = on_a_host(bandwidth=SIZE)  # as long to send as to compute
    whole = simulated(problem, placement)
    limit = whole.schedule.peak_bytes[1] // 2
    found = fitted(limited_on(problem, limit), placement, may)
    names = problem.graph.op_names
    assert "f1" in {names[each.op] for each in found.plan.copies if each.tensor >= 0}
    assert found.simulated.outcome.peak_bytes[1] <= limit
    assert found.step_seconds <= whole.schedule.makespan * 1.03
    none = dataclasses.replace(may, send=None)
    assert fitted(limited_on(problem, limit), placement, none).step_seconds > found.step_seconds


def limited_on(problem, limit):
    return dataclasses.replace(problem, device_memory_bytes=np.array([10**9, limit]))


def test_over_a_slow_link_nothing_is_sent():
    problem, placement, may = on_a_host(bandwidth=SIZE / 1000.0)
    limit = simulated(problem, placement).schedule.peak_bytes[1] // 2
    found = fitted(limited_on(problem, limit), placement, may)
    assert found.plan.copies
    assert all(each.tensor < 0 for each in found.plan.copies)


def test_what_has_no_second_run_may_wait_on_the_host():
    problem, placement, may = on_a_host(bandwidth=SIZE)
    never = dataclasses.replace(may, repeat=np.zeros(problem.num_ops, dtype=bool))
    limit = simulated(problem, placement).schedule.peak_bytes[1] * 6 // 10
    found = fitted(limited_on(problem, limit), placement, never)
    assert found.plan.copies
    assert all(each.tensor >= 0 for each in found.plan.copies)


@pytest.mark.parametrize(("length", "bandwidth", "limit"), [(16, 20, 3), (40, 10, 4), (40, 20, 5)])
def test_where_all_is_sent_and_made_again_without_end_there_is_no_plan(length, bandwidth, limit):
    problem, placement, may = on_a_host(bandwidth, length)
    schedule = simulated(problem, placement).schedule
    with pytest.raises(NoRoomError):
        rematerialized(problem, schedule, 1, limit * SIZE, may, Weights(sends=True))


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_plans_of_random_steps_hold(seed, sends):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 24)
    placement = rng.integers(problem.num_devices, size=problem.num_ops).astype(np.int32)
    placed = simulated(problem, placement)
    if placed.schedule is None:
        return
    device = int(np.argmax(placed.schedule.peak_bytes))
    repeat = rng.random(problem.num_ops) < 0.8
    for share in (0.9, 0.7, 0.5):
        limit = share * placed.schedule.peak_bytes[device]
        may = all_may(problem, repeat)
        if sends:
            may = dataclasses.replace(may, send=problem.graph.tensor_output >= 0)
        try:
            plan = rematerialized(
                problem, placed.schedule, device, limit, may, Weights(sends=sends)
            )
        except NoRoomError:
            break
        check_plan(problem, plan, repeat)
        edged = with_copies(problem, plan)
        again = edged.renumbered(with_their_copies(placement, plan))
        ours = simulated(edged.problem, again)
        makespan, peaks = reference_run(edged.problem, again.tolist())
        assert makespan == pytest.approx(ours.schedule.makespan, rel=1e-9)
        assert peaks == ours.schedule.peak_bytes.tolist()


def check_plan(problem, plan, repeat):
    """Each copy is of an op that may run again, and reads copies of the ops that it reads."""
    graph = problem.graph
    for number, copy in enumerate(plan.copies):
        assert repeat[copy.op] or copy.tensor >= 0
        assert copy.tensor < 0 or graph.tensor_producer[copy.tensor] == copy.op
        inputs = graph.use_tensor[graph.use_op == copy.op] if copy.tensor < 0 else [copy.tensor]
        for tensor, source in copy.reads.items():
            assert tensor in inputs
            assert ORIGINAL < source < number
            assert plan.copies[source].op == graph.tensor_producer[tensor]
    for op, reads in plan.reads.items():
        for tensor, source in reads.items():
            assert tensor in graph.use_tensor[graph.use_op == op]
            assert plan.copies[source].op == graph.tensor_producer[tensor]


def test_the_fastest_plan_that_fits_is_taken():
    problem = there_and_back(16)
    placement = np.zeros(problem.num_ops, dtype=np.int32)
    whole = simulated(problem, placement)
    found = fitted(limited(problem, whole.schedule.peak_bytes[0] // 2), placement, all_may(problem))
    assert found.simulated.is_feasible
    assert whole.schedule.makespan < found.step_seconds <= 1.4 * whole.schedule.makespan
    assert fitted(limited(problem, 2 * SIZE), placement, all_may(problem)) is None
    assert fitted(limited(problem, 4 * SIZE), placement, all_may(problem), until=0.0) is None


def test_what_a_copy_will_read_is_kept_for_it():
    """A large tensor is made of a small one at the end of a long chain, which is free by then."""
    ops = [Op("s0", 5.0, outputs=(1,))]
    ops += [Op(f"s{i}", 5.0, (f"s{i - 1}:0",), outputs=(1,)) for i in range(1, 6)]
    ops += [
        Op("large", 1.0, ("s5:0",), outputs=(SIZE,)),
        Op("middle", 1.0, ("large:0",), outputs=(1,)),
        Op("other", 1.0, ("middle:0",), outputs=(SIZE,)),
        Op("end", 1.0, ("other:0",), outputs=(1,)),
        Op("late", 1.0, ("end:0", "large:0"), outputs=(1,)),
    ]
    problem = limited(build_problem(ops, Machine(1, types=["GPU"])), SIZE + 10)
    plan, _ = planned(problem, SIZE + 10)
    assert len(plan.copies) == 7  # it, and the whole chain
    found = fitted(problem, np.zeros(problem.num_ops, dtype=np.int32), all_may(problem))
    assert [problem.graph.op_names[each.op] for each in found.plan.copies] == ["large"]
    assert found.step_seconds == problem.op_seconds.sum() + 1.0


def test_a_copy_runs_just_before_its_reader():
    """Two large tensors are read at the end, each beside a third; first come, first served, the
    copies of both would be there at once."""
    ops = [Op("in", 1.0, outputs=(1,))]
    ops += [Op(name, 1.0, ("in:0",), outputs=(SIZE,)) for name in ("a", "b")]
    ops += [
        Op("join", 1.0, ("a:0", "b:0"), outputs=(1,)),
        Op("peak", 1.0, ("join:0",), outputs=(2 * SIZE,)),
        Op("end", 1.0, ("peak:0",), outputs=(1,)),
        Op("read_a", 1.0, ("end:0", "a:0"), outputs=(1,)),
        Op("read_b", 1.0, ("end:0", "b:0"), outputs=(1,)),
    ]
    problem = limited(build_problem(ops, Machine(1, types=["GPU"])), 2 * SIZE + 10)
    found = fitted(problem, np.zeros(problem.num_ops, dtype=np.int32), all_may(problem))
    assert [problem.graph.op_names[each.op] for each in found.plan.copies] == ["a", "b"]
    assert found.rank.tolist() == [0, 1, 2, 3, 4, 5, 7, 9, 6, 8]
    assert found.simulated.outcome.peak_bytes[0] <= 2 * SIZE + 10
