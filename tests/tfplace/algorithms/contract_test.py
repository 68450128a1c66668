"""What each of the five algorithms has to keep to, whatever it does inside."""

import numpy as np
import pytest

from graphs.errors import ConstraintError
from graphs.placement import Measurement
from tests.builders import Machine, Op, build_problem, chain, two_towers
from tests.fakes import NEVER_FITS, NOT_A_NUMBER, WantedDevices
from tests.tfplace.algorithms.search import search
from tfplace.algorithms.colocrl import ColocRL
from tfplace.algorithms.hierarchical import Hierarchical
from tfplace.algorithms.placeto import Placeto
from tfplace.algorithms.post import Post
from tfplace.algorithms.spotlight import Spotlight
from tfplace.config import (
    AdamConfig,
    ColocRLConfig,
    GrouperConfig,
    GroupingConfig,
    HierarchicalConfig,
    PlacetoConfig,
    PostConfig,
    Seq2SeqConfig,
    SpotlightConfig,
)

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
def test_same_seed_same_trials_and_a_state_carries_on(algorithm):
    one, two = (algorithm(TOWERS, seed=5, config=SMALL[algorithm]) for _ in range(2))
    _, first = search(one, WANTED, 33)
    _, again = search(two, WANTED, 33)
    np.testing.assert_array_equal(first, again)
    state = one.state()
    assert all(isinstance(value, np.ndarray) for value in state.values())
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
