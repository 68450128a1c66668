"""Devices in a ring of quick links."""

import dataclasses

import numpy as np

from graphs.clusters.named_clusters import named
from tests.split_steps import split_step
from tfplace.algorithms.placers.data_parallel import (
    data_parallel,
    data_parallel_starts,
    in_a_ring,
    pipeline,
)
from tfplace.simulation.evaluator import SimulatingEvaluator

RATES = named("v100x8").link_bytes_per_second


def _dgx(num_hosts=1, rates=RATES, **step):
    """A split step on hosts of eight V100 each, of which the CPU is the first device."""
    gpus = rates[1:, 1:]
    links = np.full((8 * num_hosts + 1,) * 2, rates[0, 1] / 10.0)
    for first in range(1, 8 * num_hosts + 1, 8):
        links[first : first + 8, first : first + 8] = gpus
    size = len(links)
    problem = split_step(8 * num_hosts, num_devices=size, bandwidth=(links / 1e6).tolist(), **step)
    names = ["/job:worker/task:0/device:CPU:0"]
    names += [f"/job:worker/task:{n // 8}/device:GPU:{n % 8}" for n in range(size - 1)]
    return dataclasses.replace(problem, device_names=names)


def test_a_dgx_has_a_ring_of_its_quickest_links():
    problem = _dgx()
    ring = in_a_ring(problem)
    assert sorted(ring) == list(range(1, 9)) and ring[0] == 1
    rates = RATES[ring, [*ring[1:], ring[0]]]
    assert set(rates.tolist()) == {24.2e9}
    assert min(RATES[range(1, 8), range(2, 9)]) == 12e9  # in the order of their numbers


def test_each_host_keeps_its_places():
    ring = in_a_ring(_dgx(num_hosts=2))
    assert sorted(ring[:8]) == list(range(1, 9))
    assert [device + 8 for device in ring[:8]] == ring[8:]


def test_where_no_order_is_quicker_it_stays():
    even = np.where(np.eye(9, dtype=bool), np.inf, 24e9)
    assert in_a_ring(_dgx(rates=even)) == list(range(1, 9))
    assert in_a_ring(split_step(2)) == [1, 2]


def test_starts_have_shards_in_a_ring_and_the_baseline_has_not():
    problem = _dgx(num_layers=1)
    starts = data_parallel_starts(problem)
    assert np.array_equal(starts[0], data_parallel(problem))
    names = list(problem.graph.op_names)
    copies = [names.index(f"l0/shard_{m}") for m in range(8)]
    assert starts[0][copies].tolist() == list(range(1, 9))
    assert starts[1][copies].tolist() == in_a_ring(problem)


def test_what_is_handed_on_goes_round_sooner():
    problem = _dgx(num_layers=2, hosts={0: range(8)})
    outcomes = SimulatingEvaluator(problem).evaluate(data_parallel_starts(problem))
    assert outcomes[1].step_seconds < outcomes[0].step_seconds


def test_a_pipelines_stages_have_quick_links_between():
    problem = _dgx(num_layers=8)
    names = list(problem.graph.op_names)
    stages = pipeline(problem)[[names.index(f"l{layer}/shard_0") for layer in range(8)]]
    assert list(dict.fromkeys(stages.tolist())) == in_a_ring(problem)
