"""Tests of tfplace.grouping.grouped_problem."""

import numpy as np
import pytest

from graphs.errors import ConstraintError
from tests.builders import Op, build_problem, chain, colocated_pair
from tfplace.grouping.grouped_problem import GroupingConfig, grouped_problem


def test_devices_of_groups_become_devices_of_ops():
    grouped = grouped_problem(colocated_pair(), GroupingConfig(max_groups=2), seed=0)
    np.testing.assert_array_equal(grouped.grouping.group_of_op, [0, 1, 0])
    placed = grouped.device_of_op(np.array([[1, 0], [0, 1]]))
    np.testing.assert_array_equal(placed, [[1, 0, 1], [0, 1, 0]])
    assert placed.dtype == np.int32


def test_colocation_method():
    grouped = grouped_problem(chain(4), GroupingConfig(method="colocation"), seed=0)
    assert grouped.grouping.num_groups == 1
    assert grouped.has_choice


def test_pinned_ops_leave_no_choice():
    grouped = grouped_problem(build_problem([Op("a", pin=1)]), GroupingConfig(), seed=0)
    assert not grouped.has_choice


def test_unknown_method():
    with pytest.raises(ValueError, match="'kmeans' is unknown"):
        grouped_problem(chain(2), GroupingConfig(method="kmeans"), seed=0)


def test_an_op_without_a_device_is_named():
    problem = build_problem([Op("a"), Op("stuck", seconds=(1.0, np.inf), pin=1, type="Print")])
    with pytest.raises(ConstraintError, match=r"stuck \(Print\) may lie on no device"):
        grouped_problem(problem, GroupingConfig(), seed=0)


@pytest.mark.parametrize("method", ["minimum_cut", "colocation"])
def test_groups_that_can_express_a_placement(method):
    placement = np.array([1, 0, 0, 1, 1, 0], dtype=np.int32)
    config = GroupingConfig(method=method, max_groups=4)
    grouped = grouped_problem(chain(6), config, 0, placement)
    assert grouped.grouping.num_groups < 6
    devices = grouped.device_of_group(placement)
    np.testing.assert_array_equal(grouped.device_of_op(devices[np.newaxis])[0], placement)
