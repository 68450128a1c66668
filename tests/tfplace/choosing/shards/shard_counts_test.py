"""Tests of tfplace.choosing.shard_counts."""

import math

import pytest

from tfplace.choosing.shards.shard_counts import (
    first_count,
    next_count,
    shard_counts,
    smaller_count,
    why_not,
)


@pytest.mark.parametrize(
    ("num_devices", "counts"),
    [(1, [2]), (2, [2, 4]), (3, [2, 3, 4]), (4, [2, 4, 8]), (8, [2, 4, 8, 16])],
)
def test_numbers_up_to_twice_the_devices(num_devices, counts):
    assert shard_counts(num_devices) == counts


def test_a_shard_for_each_device_comes_first_then_the_neighbours_of_the_best():
    assert next_count(4, {1: 1.0}, [], 4) == 4
    assert next_count(4, {1: 1.0, 4: 0.3}, [], 4) == 2
    assert next_count(4, {1: 1.0, 4: 0.3, 2: 0.5}, [], 4) == 8
    assert next_count(4, {1: 1.0, 4: 0.3}, [2, 8], 4) is None
    assert next_count(8, {1: 0.3, 8: 0.5}, [], 8) == 2


def test_slower_devices_count_as_parts_of_the_fastest():
    assert first_count([1.0, 1.0, 1.0, 1.0]) == 4
    assert first_count([1.0, 1.0, 5.0, 5.0]) == 2
    assert first_count([1.0, 1.0, 1.0]) == 3
    assert first_count([1.0, 9.0]) == 2  # two parts at least
    assert first_count([0.0, 0.0]) == 2  # nothing takes time


def test_what_takes_too_long_to_read_gives_way_to_the_least_that_promises_as_much():
    moe = {1: 0.181, 2: 0.086, 4: 0.091, 8: 0.101, 16: 0.127}
    assert smaller_count(8, moe) == 2  # 0.181 / 2 against 0.091
    assert smaller_count(8, {1: 1.31, 2: 0.44, 4: 0.25, 8: 0.25}) == 4  # its path is long
    assert smaller_count(2, moe) == 2 and smaller_count(8, {}) == 8


def test_what_lies_beyond_a_hopeless_number_is_not_tried():
    assert "4 " in why_not(8, {1: 1.0, 4: 1.3})
    assert why_not(8, {1: 1.0, 4: 1.2}) == ""
    assert why_not(8, {1: 1.0, 4: 0.3}) == ""
    assert why_not(8, {1: 0.0}, (), {8: 1.0}) == "not tried: with 1 a step takes no time"


def test_what_lies_between_is_not_tried_where_splitting_loses_or_hardly_matters():
    assert why_not(2, {1: 1.0, 4: 1.2}) == ""
    assert "1.3 times" in why_not(2, {1: 1.0, 4: 1.3})
    assert why_not(2, {1: 1.9, 4: 1.0}) == ""
    assert "2.1 times" in why_not(2, {1: 2.1, 4: 1.0})


def test_a_number_with_too_much_work_is_not_tried_nor_what_lies_near_it():
    least = {2: 0.4, 4: 0.8, 8: 0.95, 16: 1.9}
    assert "0.95 times" in why_not(8, {1: 1.0}, (), least)
    assert why_not(4, {1: 1.0}, (), least) == ""
    assert why_not(4, {1: 1.0}, (8,), least) == ""
    assert "with 16 a step takes 1.9" in why_not(4, {1: 1.0}, (16,), least)
    assert "with 4 a step takes 2 " in why_not(2, {1: 1.0, 4: 2.0}, (), {**least, 2: 0.7})


def test_a_number_with_little_work_is_tried_though_a_greater_one_is_slow():
    assert why_not(2, {1: 1.0, 8: 1.3}, (), {2: 0.4}) == ""
    assert "1.3 times" in why_not(2, {1: 1.0, 8: 1.3}, (), {2: 0.7})
    assert why_not(4, {1: 3.0, 8: 1.0}, (), {4: 0.5}) == ""
    assert "3 times" in why_not(4, {1: 3.0, 8: 1.0}, (), {4: 0.7})
    assert "1.3 times" in why_not(16, {1: 1.0, 8: 1.3}, (), {16: 0.4})  # beyond it, not


def test_where_nothing_fits_yet_every_number_is_worth_a_try():
    assert why_not(8, {1: math.inf, 4: math.inf}, (), {8: 1.0}) == ""
    assert why_not(8, {1: math.inf, 4: 1.0}) == ""


def test_a_step_that_is_far_slower_is_said_in_whole_numbers():
    assert "takes 1,201 times as long" in why_not(2, {1: 600.4, 64: 0.5})
    assert "takes 2.4 times as long" in why_not(2, {1: 1.2, 4: 0.5})
