"""Tests of tfplace.algorithms.annealing.moves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.problem import Grouping, Infeasible
from tests.builders import Machine, Op, build_problem, chain, random_problem
from tfplace.algorithms.annealing import moves
from tfplace.algorithms.annealing.levels import coarse_to_fine, levels_of
from tfplace.grouping.quotient import colocation_units
from tfplace.simulation.evaluator import SimulatingEvaluator

THREE = Machine(3)
KINDS = {
    name: getattr(moves, name)
    for name in ("FOLLOW", "PUT", "SWAP", "RUN", "WINDOW", "CRITICAL", "EXCHANGE")
}


def _constrained():
    """Pins, a colocation group of three, and an op without a kernel on device 1."""
    ops = [
        Op("a", 1.0, outputs=(1,), colocation=0),
        Op("b", 1.0, ("a:0",), (1,), pin=2),
        Op("c", (1.0, np.inf, 1.0), ("b:0",), (1,)),
        Op("d", 1.0, ("c:0",), (1,), colocation=0),
        Op("e", 1.0, ("d:0",), (1,), colocation=1),
        Op("f", 1.0, ("e:0",), (1,), colocation=1, pin=0),
        Op("g", 1.0, ("f:0",), (1,)),
        Op("h", 1.0, ("g:0",), (1,), colocation=0),
    ]
    return build_problem(ops, THREE)


def _only(levels, kind, level=0):
    """Limits with which every move is of one kind on one level."""
    level_weights = np.zeros(len(levels.free_row) - 1)
    level_weights[level] = 1.0
    return moves.choice_limits(levels, level_weights, np.arange(moves.NUM_KINDS) == kind)


def _position(device_of_op, seed=0, critical=()):
    position = moves.new_position(len(device_of_op), seed)
    position.device_of_op[:] = device_of_op
    position.critical[: len(critical)] = critical
    position.num_critical[0] = len(critical)
    return position


def _after(levels, kind, device_of_op, seeds=range(60), level=0, critical=()):
    """The distinct placements that one move of a kind leads to."""
    found = set()
    for seed in seeds:
        position = _position(device_of_op, seed, critical)
        moves.make_move(levels, _only(levels, kind, level), position)
        found.add(tuple(position.device_of_op.tolist()))
    return found


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("level", [0, 1])
def test_each_kind_keeps_kernels_pins_and_colocation_and_can_be_taken_back(kind, level):
    problem = _constrained()
    levels = coarse_to_fine(problem, (4,), 0)
    evaluator = SimulatingEvaluator(problem, 1)
    position = _position([1, 2, 0, 1, 0, 0, 2, 1], critical=[7, 6, 3, 2])
    num_changes = 0
    for _ in range(200):
        before = position.device_of_op.copy()
        moves.make_move(levels, _only(levels, kind, level), position)
        after = position.device_of_op.copy()
        outcome = evaluator.evaluate(after[None])[0]
        assert not isinstance(outcome, Infeasible), outcome
        num_changes += bool((after != before).any())
        moves.take_back(position)
        np.testing.assert_array_equal(position.device_of_op, before)
        position.device_of_op[:] = after
    assert num_changes > 20


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_what_a_move_notes_is_what_it_changed(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 20)
    levels = coarse_to_fine(problem, (2, 5), seed)
    limits = moves.choice_limits(levels, np.ones(len(levels.free_row) - 1), np.ones(7))
    if not limits[-1]:
        return
    position = _position(rng.integers(0, problem.num_devices, problem.num_ops), seed)
    for _ in range(30):
        before = position.device_of_op.copy()
        moves.make_move(levels, limits, position)
        changed = position.changed_op[: position.num_changed[0]]
        differs = np.flatnonzero(position.device_of_op != before)
        assert set(differs) <= set(changed)
        noted_first = np.unique(changed, return_index=True)[1]
        first_from = position.changed_from[: position.num_changed[0]][noted_first]
        np.testing.assert_array_equal(first_from, before[changed[noted_first]])


def test_follow_joins_the_ends_of_an_edge_between_devices():
    levels = levels_of(chain(4), [colocation_units(chain(4).graph)])
    assert _after(levels, moves.FOLLOW, [0, 0, 1, 1]) == {(0, 1, 1, 1), (0, 0, 0, 1)}
    assert _after(levels, moves.FOLLOW, [1, 1, 1, 1]) == {(1, 1, 1, 1)}


def test_put_moves_one_group_as_a_whole():
    problem = chain(4)
    halves = Grouping(np.array([0, 0, 1, 1], dtype=np.int32), 2)
    levels = levels_of(problem, [halves, colocation_units(problem.graph)])
    assert _after(levels, moves.PUT, [0, 0, 0, 0]) == {(1, 1, 0, 0), (0, 0, 1, 1)}
    singles = _after(levels, moves.PUT, [0, 0, 0, 0], level=1)
    assert singles == {(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)}


def test_swap_keeps_what_each_device_holds():
    levels = levels_of(chain(4), [colocation_units(chain(4).graph)])
    assert _after(levels, moves.SWAP, [0, 0, 1, 1]) == {
        (1, 0, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1), (0, 1, 1, 0)
    }  # fmt: skip


def test_run_moves_neighbours_to_one_device():
    levels = levels_of(chain(5), [colocation_units(chain(5).graph)])
    for placement in _after(levels, moves.RUN, [0, 0, 0, 0, 0]):
        ones = [op for op, device in enumerate(placement) if device == 1]
        assert ones == list(range(ones[0], ones[-1] + 1)), placement


def test_window_moves_a_part_of_a_group_with_whole_colocation_units():
    ops = [Op(f"op{i}", inputs=(f"op{i - 1}:0",) if i else (), colocation=0 if i in (1, 5) else -1)
           for i in range(6)]  # fmt: skip
    problem = build_problem(ops)
    levels = levels_of(problem, [Grouping(np.zeros(6, dtype=np.int32), 1)])
    found = _after(levels, moves.WINDOW, [0] * 6, range(200))
    assert (0, 0, 1, 1, 0, 0) in found
    assert all(placement[1] == placement[5] for placement in found)


def test_exchange_swaps_two_devices_within_a_stretch_of_the_graph():
    problem = chain(5)
    levels = levels_of(problem, [colocation_units(problem.graph)])
    before = (0, 1, 0, 1, 0)
    for after in _after(levels, moves.EXCHANGE, before):
        changed = [op for op in range(5) if after[op] != before[op]]
        assert changed == list(range(changed[0], changed[-1] + 1))


def test_critical_moves_only_what_lies_on_the_path():
    problem = chain(5)
    levels = levels_of(problem, [colocation_units(problem.graph)])
    found = _after(levels, moves.CRITICAL, [0, 0, 0, 1, 0], critical=[3, 1])
    assert found == {(0, 0, 0, 0, 0), (0, 1, 0, 1, 0)}
    # A path of one op says nothing, nor does none.
    assert _after(levels, moves.CRITICAL, [0, 0, 0, 1, 0], critical=[3]) == {(0, 0, 0, 1, 0)}


def test_neighbours_are_one_move_away_and_the_position_stays():
    problem = chain(6)
    levels = levels_of(problem, [colocation_units(problem.graph)])
    position = _position([0, 1, 0, 1, 0, 1])
    neighbours = np.empty((20, 6), dtype=np.int32)
    moves.fill_neighbours(levels, _only(levels, moves.PUT), position, neighbours)
    assert ((neighbours != position.device_of_op).sum(axis=1) == 1).all()
    assert position.device_of_op.tolist() == [0, 1, 0, 1, 0, 1]
    assert len(np.unique(neighbours, axis=0)) > 3


def test_levels_and_kinds_are_drawn_as_often_as_their_weights_say():
    ops = [Op("a", pin=0), Op("b"), Op("c")]
    problem = build_problem(ops)
    stuck = Grouping(np.zeros(3, dtype=np.int32), 1)
    levels = levels_of(problem, [stuck, colocation_units(problem.graph)])
    limits = moves.choice_limits(levels, np.array([5.0, 0.5]), [1, 2, 0, 1, 0, 0, 4])
    # No group of the first level is free.
    assert limits[:7].tolist() == [0.0] * 7
    assert np.diff(limits[6:]).tolist() == [0.5, 1.0, 0.0, 0.5, 0.0, 0.0, 2.0]


def test_the_bell_is_widest_where_the_focus_is():
    levels = coarse_to_fine(chain(9), (2, 4, 6), 0)
    weights = moves.bell(levels, 1 / 3, 1.0)
    np.testing.assert_allclose(weights, np.exp([-1.0, 0.0, -1.0, -4.0]))


def test_random_shares_are_uniform_and_repeat_with_their_seed():
    first, second = (moves.new_position(1, 3).random for _ in range(2))
    shares = [moves.random_share(first) for _ in range(4000)]
    assert shares == [moves.random_share(second) for _ in range(4000)]
    counts, _ = np.histogram(shares, bins=10, range=(0.0, 1.0))
    assert counts.sum() == 4000 and counts.min() > 320 and counts.max() < 480
