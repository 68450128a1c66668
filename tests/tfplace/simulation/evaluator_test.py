import numpy as np

from graphs.problem import Infeasible, Measurement
from tests.builders import Machine, Op, build_problem, chain, colocated_pair
from tfplace.simulation.evaluator import SimulatingEvaluator


def _outcome(problem, device_of_op):
    [outcome] = SimulatingEvaluator(problem).evaluate(np.array([device_of_op], dtype=np.int32))
    return outcome


def test_a_feasible_placement_is_measured():
    assert _outcome(chain(3, size=2), [1, 1, 1]) == Measurement(3.0, (0, 4), "simulated")


def test_memory_names_device_wanted_and_usable():
    problem = chain(3, size=50, machine=Machine(memory=100, memory_reserve=0.1))
    assert _outcome(problem, [0, 0, 0]) == Infeasible(
        "memory",
        "/device:CPU:0 needs 100 bytes at its peak, but 90 of its 100 are usable with 10% kept "
        "free",
        (100, 0),
        3.0,
    )


def test_a_peak_at_the_limit_fits():
    problem = chain(3, size=45, machine=Machine(memory=100, memory_reserve=0.1))
    assert isinstance(_outcome(problem, [0, 0, 0]), Measurement)


def test_missing_kernels_name_op_type_and_device():
    ops = [Op("a", (1.0, np.inf), type="StringSplit"), Op("b", (1.0, np.inf))]
    outcome = _outcome(build_problem(ops), [1, 1])
    assert (outcome.reason, outcome.step_seconds) == ("no_kernel", np.inf)
    assert outcome.message == ("op 'a' (StringSplit) has no kernel on /device:GPU:0 (2 such ops)")


def test_split_colocation_names_both_ops():
    outcome = _outcome(colocated_pair(), [0, 0, 1])
    assert outcome.reason == "colocation"
    assert outcome.message == (
        "op 'update' lies on /device:GPU:0 and 'variable' on /device:CPU:0, but they must share "
        "a device"
    )
    assert isinstance(_outcome(colocated_pair(), [1, 0, 1]), Measurement)


def test_a_broken_pin_comes_first():
    outcome = _outcome(build_problem([Op("a", (1.0, np.inf), pin=0)]), [1])
    assert (outcome.reason, outcome.message) == (
        "pin",
        "op 'a' lies on /device:GPU:0 but is pinned to /device:CPU:0",
    )
