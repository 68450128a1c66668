"""The advice's sentences."""

import dataclasses

from tfplace.choosing.what_if import DataParallel
from tfplace.report.advice import advice

ESTIMATE = DataParallel(
    num_replicas=2,
    batch_size=8,
    step_seconds=7.2,
    compute_seconds=6.0,
    all_reduce_seconds=1.2,
    gradient_bytes=60,
    batch_share=0.8,
    bytes_per_replica=160,
    fits=True,
)


def test_a_placed_model_without_an_estimate_gets_no_advice():
    assert advice(None, "placed", 2.0, 1.5) == []


def test_data_parallelism_is_advised_where_it_is_faster():
    assert advice(ESTIMATE, "placed", 8.0, 5.0) == [
        "plain data parallelism over 2 devices would be faster than any placement found: about "
        "7.2 s a step at the same batch of 8, 6 s of compute, taking 80 % of the work to shrink "
        "in proportion to the batch, and 1.2 s to sum 60 B of gradients"
    ]
    (sentence,) = advice(ESTIMATE, "placed", 8.0, 7.5)
    assert "would be faster than any placement of this graph can be: about 7.2 s" in sentence
    (sentence,) = advice(ESTIMATE, "placed", 8.0, None)
    assert "would be faster than any placement found: about 7.2 s" in sentence


def test_the_placement_is_said_to_be_faster_where_it_is():
    assert advice(ESTIMATE, "placed", 7.2, 5.0) == [
        "the placement written is predicted to be faster (7.2 s a step) than plain data "
        "parallelism over 2 devices, which would take about 7.2 s a step"
    ]


def test_replicas_that_do_not_fit_say_so():
    assert advice(dataclasses.replace(ESTIMATE, fits=False), "placed", 8.0, 5.0) == [
        "plain data parallelism over 2 devices would not fit: a replica needs 160 B, all "
        "variables among them"
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
