"""The advice's sentences."""

import dataclasses

from tfplace.choosing.data_parallel import DataParallel
from tfplace.report.advice import advice

ESTIMATE = DataParallel(7.2, True, "", {}, num_shards=2, num_transfers=3, transfer_bytes=60)


def test_a_placed_model_without_an_estimate_gets_no_advice():
    assert advice(None, "placed", 2.0, 1.5) == []


def test_data_parallelism_is_advised_where_it_is_faster():
    assert advice(ESTIMATE, "placed", 8.0, 5.0) == [
        "plain data parallelism over 2 devices is predicted to be faster: 7.2 s a step, moving "
        "60 B between them; try --shards=2"
    ]


def test_the_placement_is_said_to_be_as_fast_where_it_is():
    assert advice(ESTIMATE, "placed", 7.2, 5.0) == [
        "the placement written is predicted to be at least as fast (7.2 s a step) as plain data "
        "parallelism over 2 devices: 7.2 s a step"
    ]


def test_data_parallelism_that_can_not_run_says_why():
    cannot = dataclasses.replace(ESTIMATE, step_seconds=None, feasible=False, reason="no memory")
    assert advice(cannot, "placed", 8.0, 5.0) == [
        "plain data parallelism over 2 devices can't run: no memory"
    ]


def test_one_device_is_said_to_be_best_and_what_proves_it():
    unproven = (
        "one device is best for this graph: no placement over several that was found beats its 2 s"
    )
    assert advice(None, "kept_single", 2.0, None) == [unproven]
    assert advice(None, "kept_single", 2.0, 0.0) == [unproven]
    assert advice(None, "kept_single", 2.0, 1.5) == [
        f"{unproven}, and none can take less than 1.5 s"
    ]
    assert len(advice(ESTIMATE, "kept_single", 8.0, None)) == 2
