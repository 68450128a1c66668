"""The advice's sentences."""

import dataclasses

from tfplace.choosing.data_parallel import DataParallel
from tfplace.report.report import advice, data_parallel_sentence, shards_advice

ESTIMATE = DataParallel(7.2, True, "", {}, num_shards=2, num_transfers=3, transfer_bytes=60)


def test_a_placed_model_without_an_estimate_gets_no_advice():
    assert advice(None, 2.0) == []


def test_data_parallelism_is_advised_where_it_is_faster():
    assert advice(ESTIMATE, 8.0) == [
        "plain data parallelism over 2 devices is predicted to be faster: 7.2 s a step, moving "
        "60 B between them; try --shards=2"
    ]


def test_nothing_is_advised_where_nothing_would_be_gained():
    assert advice(ESTIMATE, 7.2) == []
    cannot = dataclasses.replace(ESTIMATE, step_seconds=None, feasible=False, reason="no memory")
    assert advice(cannot, 8.0) == []


def test_why_data_parallelism_can_not_be_had_is_said():
    cannot = dataclasses.replace(ESTIMATE, feasible=False, reason="no batch of 2 entries")
    assert data_parallel_sentence({"data_parallel": cannot}) == (
        "data parallelism, shard i on device i of 2: no batch of 2 entries"
    )
    assert data_parallel_sentence({"data_parallel": ESTIMATE}).endswith(
        "of 2: 3 transfers, 60 B a step, 0 B on the fullest device"
    )
    assert data_parallel_sentence({}) == ""


def test_a_gain_below_what_starting_a_step_takes_is_no_advice():
    assert advice(dataclasses.replace(ESTIMATE, step_seconds=5e-7), 1e-5) == []


def test_shards_on_one_device_gain_nothing():
    assert shards_advice({"kind": "data_parallel"}) == []
    (sentence,) = shards_advice({"kind": "gradient_accumulation"})
    assert "without --shards" in sentence
