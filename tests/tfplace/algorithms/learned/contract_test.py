"""What each of the five algorithms has to keep to, whatever it does inside."""

import dataclasses
import io
import itertools

import numpy as np
import pytest

from graphs.errors import ConstraintError
from graphs.problem import Measurement
from tests.builders import Machine, Op, build_problem, chain, two_towers
from tests.fakes import NEVER_FITS, NOT_A_NUMBER, WantedDevices
from tests.tfplace.algorithms.learned.search import search
from tfplace.algorithms.learned.config import (
    AdamConfig,
    ColocRLConfig,
    GrouperConfig,
    HierarchicalConfig,
    PlacetoConfig,
    PostConfig,
    Seq2SeqConfig,
    SpotlightConfig,
)
from tfplace.algorithms.learned.group_placer import ColocRL, Spotlight
from tfplace.algorithms.learned.hierarchical import Hierarchical
from tfplace.algorithms.learned.placeto import Placeto
from tfplace.algorithms.learned.post import Post
from tfplace.grouping.grouped_problem import GroupingConfig
from tfplace.search.trial import DivergedError
from tfplace.simulation.evaluator import SimulatingEvaluator

GROUPS = GroupingConfig(max_groups=9)
SEQ2SEQ = Seq2SeqConfig(units=8, num_layers=1, bidirectional=False, compiled=False)
FAST = AdamConfig(learning_rate=1e-2)
SMALL = {
    ColocRL: ColocRLConfig(GROUPS, SEQ2SEQ, FAST, first_baseline=None),
    Hierarchical: HierarchicalConfig(GrouperConfig(num_groups=9), SEQ2SEQ, FAST),
    Spotlight: SpotlightConfig(GROUPS, SEQ2SEQ, FAST),
    Post: PostConfig(GROUPS, elite_period=20),
    Placeto: PlacetoConfig(GROUPS, units=8, rounds=2, optimizer=FAST, last_learning_rate=1e-2),
}
# Trials after which it should have learned that the other tower belongs on the other device.
BUDGET = {ColocRL: 300, Hierarchical: 300, Spotlight: 150, Post: 150, Placeto: 200}
TOWERS = two_towers(2, machine=Machine(num_devices=2, bandwidth=1e6))
WANTED = WantedDevices([0, 1, 0, 1, 1])
ALL = pytest.mark.parametrize("algorithm", list(SMALL), ids=lambda each: each.__name__)


@ALL
def test_finds_the_known_optimum_and_learns(algorithm):
    policy = algorithm(TOWERS, seed=0, config=SMALL[algorithm])
    outcomes, placements = search(policy, WANTED, BUDGET[algorithm])
    assert min(outcome.step_seconds for outcome in outcomes) == 1.0
    wrong = (placements != WANTED.wanted).mean(axis=1)
    assert wrong[-20:].mean() < 0.75 * wrong[:20].mean()


@ALL
def test_finds_the_optimum_of_all_placements_in_the_simulator(algorithm):
    problem = two_towers(3, machine=Machine(num_devices=2, bandwidth=1e6, types=["GPU", "GPU"]))
    every = np.array(list(itertools.product(range(2), repeat=problem.num_ops)), dtype=np.int32)
    simulator = SimulatingEvaluator(problem)
    optimum = min(outcome.step_seconds for outcome in simulator.evaluate(every))
    single = simulator.evaluate(np.zeros_like(every[:1]))[0].step_seconds
    policy = algorithm(problem, seed=1, config=SMALL[algorithm])
    outcomes, _ = search(policy, simulator, 2 * BUDGET[algorithm])
    seconds = np.array([outcome.step_seconds for outcome in outcomes])
    assert seconds.min() == optimum < single
    assert seconds[-50:].mean() < 0.9 * seconds[:50].mean()


@ALL
def test_same_seed_same_trials_and_a_state_carries_on_from_a_file(algorithm):
    one, two = (algorithm(TOWERS, seed=5, config=SMALL[algorithm]) for _ in range(2))
    _, first = search(one, WANTED, 33)
    _, again = search(two, WANTED, 33)
    np.testing.assert_array_equal(first, again)
    file = io.BytesIO()
    np.savez(file, **one.state())
    file.seek(0)
    state = dict(np.load(file, allow_pickle=False))
    _, expected = search(one, WANTED, 25)
    other = algorithm(TOWERS, seed=6, config=SMALL[algorithm])
    other.set_state(state)
    _, resumed = search(other, WANTED, 25)
    np.testing.assert_array_equal(resumed, expected)


@ALL
def test_a_state_of_another_size_is_refused(algorithm):
    state = algorithm(TOWERS, config=SMALL[algorithm]).state()
    state["policy/0"] = np.zeros((1, 2, 3))
    with pytest.raises(ValueError, match="restoring a policy: policy/0 has shape"):
        algorithm(TOWERS, config=SMALL[algorithm]).set_state(state)


@ALL
def test_no_feasible_placement_keeps_everything_finite(algorithm):
    policy = algorithm(chain(4), config=SMALL[algorithm])
    search(policy, NEVER_FITS, 10)
    search(policy, NOT_A_NUMBER, 10)
    weights = {name: value for name, value in policy.state().items() if "policy/" in name}
    assert weights
    assert all(np.isfinite(value).all() for value in weights.values())


@ALL
@pytest.mark.parametrize(
    "problem",
    [chain(3, machine=Machine(num_devices=1)), build_problem([Op("a", pin=1), Op("b", pin=0)])],
    ids=["one device", "all pinned"],
)
def test_without_a_choice_it_ends_after_one_placement(algorithm, problem):
    policy = algorithm(problem, config=SMALL[algorithm])
    outcomes, placements = search(policy, WantedDevices([0] * problem.num_ops), 50)
    assert len(placements) == 1
    assert isinstance(outcomes[0], Measurement)
    expected = np.where(problem.pinned_device >= 0, problem.pinned_device, 0)
    np.testing.assert_array_equal(placements[0], expected)
    assert policy.propose() is None


@ALL
def test_one_group_is_placed_whole(algorithm):
    config = SMALL[algorithm]
    if algorithm is Hierarchical:
        config = dataclasses.replace(config, grouper=GrouperConfig(num_groups=1))
    else:
        config = dataclasses.replace(config, grouping=GroupingConfig(max_groups=1))
    _, placements = search(algorithm(chain(3), config=config), WantedDevices([1, 1, 1]), 40)
    assert (placements == placements[:, :1]).all()
    assert set(placements[:, 0]) == {0, 1}


@pytest.mark.parametrize(
    ("algorithm", "part"), [(Hierarchical, "grouper"), *((each, "policy") for each in SMALL)]
)
def test_weights_that_are_no_numbers_end_it_before_another_placement(algorithm, part):
    policy = algorithm(TOWERS, config=SMALL[algorithm])
    state = policy.state()
    names = [name for name in state if name.startswith(f"{part}/")]
    assert names
    poisoned = {name: np.full_like(state[name], np.nan) for name in names}
    policy.set_state({**state, **poisoned})
    with pytest.raises(DivergedError, match="diverged and proposes nothing more"):
        search(policy, WANTED, 40)


@ALL
def test_placements_are_legal(algorithm):
    ops = [
        Op("variable", outputs=(8,), colocation=0),
        Op("free", inputs=("variable:0",), outputs=(8,)),
        Op("cpu_only", seconds=(1.0, np.inf, np.inf), inputs=("free:0",)),
        Op("pinned", inputs=("free:0",), pin=2),
        Op("update", inputs=("free:0", "variable:0"), outputs=(), colocation=0),
    ]
    problem = build_problem(ops, Machine(num_devices=3))
    policy = algorithm(problem, config=SMALL[algorithm])
    _, placements = search(policy, WantedDevices([0, 1, 0, 2, 0]), 30)
    assert problem.allowed()[np.arange(5), placements].all()
    np.testing.assert_array_equal(placements[:, 0], placements[:, 4])
    assert len(np.unique(placements, axis=0)) > 1


@ALL
def test_an_op_that_may_lie_nowhere_is_an_error(algorithm):
    problem = build_problem([Op("a"), Op("stuck", seconds=(1.0, np.inf), pin=1)])
    with pytest.raises(ConstraintError, match="stuck"):
        algorithm(problem, config=SMALL[algorithm])
