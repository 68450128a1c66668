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
    assert advice(None, 2.0, 1.5) == []


def test_data_parallelism_is_advised_where_it_is_faster():
    assert advice(ESTIMATE, 8.0, 5.0) == [
        "plain data parallelism over 2 devices would be faster than any placement found: about "
        "7.2 s a step at the same batch of 8, 6 s of compute, taking 80 % of the work to shrink "
        "in proportion to the batch, and 1.2 s to sum 60 B of gradients"
    ]
    (sentence,) = advice(ESTIMATE, 8.0, 7.5)
    assert "would be faster than any placement of this graph can be: about 7.2 s" in sentence
    (sentence,) = advice(ESTIMATE, 8.0, None)
    assert "would be faster than any placement found: about 7.2 s" in sentence


def test_nothing_is_advised_where_nothing_would_be_gained():
    assert advice(ESTIMATE, 7.2, 5.0) == advice(ESTIMATE, 7.0, None) == []
    assert advice(dataclasses.replace(ESTIMATE, fits=False), 7.0, None) == []


def test_a_gain_below_what_starting_a_step_takes_is_no_advice():
    short = dataclasses.replace(ESTIMATE, step_seconds=5e-7, compute_seconds=5e-7)
    assert advice(short, 1e-5, None) == []


def test_replicas_that_do_not_fit_say_so():
    assert advice(dataclasses.replace(ESTIMATE, fits=False), 8.0, 5.0) == [
        "plain data parallelism over 2 devices would not fit: a replica needs 160 B, all "
        "variables among them"
    ]
