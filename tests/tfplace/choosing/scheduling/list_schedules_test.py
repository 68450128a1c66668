"""An order is found, pays, and leads to nothing worse."""

import dataclasses
import itertools
import time

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem, random_problem
from tests.reference_simulator import reference_run
from tfplace.choosing.scheduling import list_schedules as ordered_module
from tfplace.choosing.scheduling.anchors import anchors_of
from tfplace.choosing.scheduling.just_in_time_reads import late_read_edges, with_free_reads
from tfplace.choosing.scheduling.list_schedules import by_memory, ordered
from tfplace.simulation.simulated import simulated
from tfplace.simulation.simulator import Simulator


def names(problem, edges):
    """{(before, after)} by the ops' names."""
    known = problem.graph.op_names
    return {(known[a], known[b]) for a, b in zip(edges.before, edges.after, strict=True)}


def test_what_others_wait_for_goes_first():
    """a and b are ready at 0; the other device waits for b."""
    ops = [Op("a", 4.0), Op("b", 1.0, outputs=(1,)), Op("c", 5.0, ("b:0",))]
    problem = build_problem(ops)
    found = ordered(problem, np.array([0, 0, 1], dtype=np.int32))
    assert found.without.step_seconds == 11.0
    assert found.outcome.step_seconds == 7.0
    assert names(problem, found.edges) == {("b", "a")}


def test_nothing_is_tried_once_the_time_is_over():
    problem = build_problem([Op("a", 4.0), Op("b", 1.0, outputs=(1,)), Op("c", 5.0, ("b:0",))])
    found = ordered(problem, np.array([0, 0, 1], dtype=np.int32), until=0.0)
    assert len(found.edges) == 0
    assert found.outcome is found.without


def test_what_would_end_too_late_is_not_tried(monkeypatch):
    """Each order takes three seconds; of ten, three are over before the end, a fourth is not."""
    ticks, tried = itertools.count(), []

    def simulated_slowly(problem, device_of_op):
        tried.append(next(ticks))
        return simulated(problem, device_of_op)

    monkeypatch.setattr(ordered_module, "simulated", simulated_slowly)
    monkeypatch.setattr(time, "monotonic", lambda: 3.0 * max(len(tried) - 1, 0))
    problem = variables(4)
    placement = np.array([name[0] == "x" for name in problem.graph.op_names], dtype=np.int32)
    ordered(problem, placement)
    num_all = len(tried) - 1
    tried.clear()
    ordered(problem, placement, until=10.0)
    assert len(tried) - 1 == 3 < num_all


def test_first_come_first_served_stays_where_nothing_beats_it():
    found = ordered(build_problem([Op("a"), Op("b")]), np.array([0, 0], dtype=np.int32))
    assert len(found.edges) == 0
    assert found.outcome is found.without


def variables(count, with_decay=False):
    """Layers on device 1 whose variables lie on 0, last ones first; a small value goes along."""
    ops = [Op(f"w{i}", 0.0, outputs=(0,), persistent=4, type="VarHandleOp") for i in range(count)]
    ops += [
        Op(f"r{i}", 0.0, (f"w{i}:0",), (4,), type="ReadVariableOp") for i in reversed(range(count))
    ]
    ops.append(Op("x0", 1.0, outputs=(1,)))
    ops.append(Op("y0", 1.0, outputs=(1,)))
    for i in range(count):
        ops.append(Op(f"x{i + 1}", 4.0, (f"x{i}:0", f"r{i}:0"), (1,)))
        ops.append(Op(f"y{i + 1}", 4.0, (f"y{i}:0",), (1,)))
        if with_decay:
            ops.append(Op(f"d{i}", 0.1, (f"r{i}:0",)))
    return build_problem(ops, Machine(bandwidth=1.0))


def test_variables_are_read_when_they_are_needed():
    problem = variables(3)
    on = [1 if name.startswith("x") and name != "x0" else 0 for name in problem.graph.op_names]
    found = ordered(problem, np.array(on, dtype=np.int32))
    # r2 and r1 no longer go before what x1 waits for; y1 ends when r1's value has to leave.
    assert found.outcome.step_seconds < 0.75 * found.without.step_seconds
    assert any(after.startswith("r") for _, after in names(problem, found.edges))


@pytest.mark.parametrize("with_decay", [False, True])
def test_a_use_beside_the_variable_waits_with_its_read(with_decay):
    """What decays a weight could run at once, but nobody waits for it."""
    problem = variables(3, with_decay)
    anchors = anchors_of(problem)
    on = [1 if name.startswith("x") and name != "x0" else 0 for name in problem.graph.op_names]
    schedule = Simulator(with_free_reads(problem, anchors)).schedule(np.array(on, dtype=np.int32))
    edges = late_read_edges(problem, schedule, anchors, 0.0)
    last_read = list(problem.graph.op_names).index("r2")
    [holder] = edges.before[edges.after == last_read]
    assert schedule.op_end[holder] >= 2.0  # not at 0, when the use beside it could run


def relayed(count):
    """Layers of two shards, one on each of two devices; weights go from shard 0 to shard 1."""
    ops = [Op(f"w{i}", 0.0, outputs=(0,), persistent=4, type="VarHandleOp") for i in range(count)]
    for i in reversed(range(count)):  # what is needed last is read first
        ops.append(Op(f"r{i}", 0.0, (f"w{i}:0",), (8,), type="ReadVariableOp"))
        for shard, source in enumerate((f"r{i}:0", f"r{i}/relayed/shard_0:0")):
            name = f"r{i}/relayed/shard_{shard}"
            ops.append(Op(name, 0.0, (source,), (8,), type="Identity"))
    for shard in range(2):
        below = ()
        for i in range(count):
            name = f"x{i}/shard_{shard}"
            ops.append(Op(name, 4.0, (*below, f"r{i}/relayed/shard_{shard}:0"), (1,)))
            below = (f"{name}:0",)
    return build_problem(ops, Machine(num_devices=2, bandwidth=2.0))


def test_what_is_handed_on_from_shard_to_shard_is_read_when_its_last_reader_comes_to_it():
    problem = relayed(4)
    on = [int(name.endswith("shard_1")) for name in problem.graph.op_names]
    found = ordered(problem, np.array(on, dtype=np.int32))
    # All are sent at 0, and the first layer's arrives last, after 16 s. Held back, each leaves
    # when shard 0 is a layer before; the second one waits for the device that hands it on.
    assert found.without.step_seconds == 32.0
    assert found.outcome.step_seconds == 24.0
    assert ("x0/shard_0", "r2") in names(problem, found.edges)


def test_reads_that_wait_for_something_are_not_held_back():
    ops = [Op("v", 0.0, type="VarHandleOp"), Op("a", inputs=("v:0",), outputs=(1,))]
    ops += [Op("r", 0.0, ("v:0", "^a"), (4,), type="ReadVariableOp"), Op("x", 1.0, ("r:0",))]
    problem = build_problem(ops)
    anchors = anchors_of(problem)
    assert not anchors.is_read.any()
    schedule = Simulator(problem, 1).schedule([0, 0, 0, 1])
    assert len(late_read_edges(problem, schedule, anchors, 0.0)) == 0


@pytest.mark.parametrize("seed", range(20))
def test_never_worse_always_within_devices_and_as_the_reference_has_it(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    device_of_op = rng.integers(0, problem.num_devices, problem.num_ops).astype(np.int32)
    found = ordered(problem, device_of_op)
    assert found.outcome.step_seconds <= found.without.step_seconds
    edges = found.edges
    assert np.array_equal(device_of_op[edges.before], device_of_op[edges.after])
    assert found.problem is problem  # not one with edges for each order that is kept
    edged = found.edged()
    placement = edged.renumbered(device_of_op)
    expected, peaks = reference_run(edged.problem, placement.tolist())
    assert found.outcome.step_seconds == pytest.approx(expected, rel=1e-9)
    assert list(found.outcome.peak_bytes) == peaks


def test_what_leaves_least_in_memory_goes_first():
    ops = [
        Op("x", outputs=(100,)),
        Op("y", inputs=("x:0",), outputs=(100,)),
        # A convolution's gradients: the second is small, and the last to read x.
        Op("of_input", inputs=("y:0",), outputs=(100,)),
        Op("of_filter", inputs=("x:0", "y:0"), outputs=(1,)),
        Op("end", inputs=("of_input:0", "of_filter:0")),
    ]
    problem = build_problem(ops, Machine(1))
    placement = np.zeros(5, dtype=np.int32)
    whole = simulated(problem, placement)
    rank = by_memory(problem, whole.known_schedule())
    assert rank.tolist() == [0, 1, 3, 2, 4]
    ranked = simulated(dataclasses.replace(problem, start_rank=rank), placement)
    assert (whole.known_schedule().peak_bytes, ranked.known_schedule().peak_bytes) == ([301], [201])


@pytest.mark.parametrize("seed", range(30))
def test_the_sequence_by_memory_is_one_that_can_be_run(seed):
    problem = random_problem(np.random.default_rng(seed), max_ops=30)
    schedule = simulated(problem, np.zeros(problem.num_ops, dtype=np.int32)).known_schedule()
    rank = by_memory(problem, schedule)
    assert sorted(rank.tolist()) == list(range(problem.num_ops))
    producer, user, _ = problem.graph.op_edges()
    assert (rank[producer] < rank[user]).all()
