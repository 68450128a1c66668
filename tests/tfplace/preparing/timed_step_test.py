"""What a split step's ops take, by real runs of the unsplit one."""

import numpy as np

from tfplace.preparing.find_costs import TimedStep
from tfplace.preparing.node_seconds import TracedNodes

CPU = ("CPU",)
NAN = np.nan
OVERHEAD = 0.5
# A product, a sum that was folded into it, an update, one that never ran, one of unknown size.
NAMES = ("a/product", "a/sum", "update", "never", "open")
TRACED = TracedNodes(
    np.array([4.5, 1.0, 2.0, NAN, 3.5]),
    np.array([False, True, False, False, False]),
    np.arange(5),
    OVERHEAD,
    wall_time_coverage=0.9,
    num_steps=5,
    num_disturbed=0,
)
STEP = TimedStep(NAMES, {CPU: np.array([8.0, 2.0, 1.0, 1.0, 1e-9])}, {CPU: TRACED})


def _seconds(**prices: float) -> TracedNodes:
    names = [name.replace("__", "/") for name in prices]
    found = STEP.in_shards(CPU, names, np.array([*prices.values()]))
    assert found is not None
    return found


def test_a_copy_takes_its_part_by_price_and_the_executor_s_share() -> None:
    found = _seconds(a__product__shard_0=2.0, a__product__shard_11=6.0)
    np.testing.assert_allclose(found.seconds, [0.5 + 4.0 / 4, 0.5 + 4.0 * 3 / 4])
    assert found.is_by_unsplit and not found.is_absent.any()


def test_a_copy_of_what_was_folded_is_folded_and_takes_its_part_of_the_other_s_time() -> None:
    found = _seconds(a__sum__shard_1=1.0)
    np.testing.assert_allclose(found.seconds, [0.5])
    assert found.is_absent.all()


def test_what_stays_whole_takes_as_long_as_before() -> None:
    np.testing.assert_allclose(_seconds(update=9.0).seconds, [2.0])


def test_a_part_is_never_more_than_all_of_an_op_of_unknown_size() -> None:
    np.testing.assert_allclose(_seconds(open__shard_0=1.0).seconds, [3.5])


def test_what_is_new_or_never_ran_is_not_known() -> None:
    found = _seconds(a__product__summed=1.0, never__shard_0=1.0)
    assert np.isnan(found.seconds).all() and not found.is_absent.any()


def test_a_kind_of_device_that_was_not_timed_says_nothing() -> None:
    assert STEP.in_shards(("GPU",), ["update"], np.ones(1)) is None
