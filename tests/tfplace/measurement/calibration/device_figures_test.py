"""What ops and steps cost, from steps whose times are made up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphs.cluster import Device
from graphs.clusters.discovery import find_cluster
from tests.tfplace.measurement.calibration.fake_prober import FakeProber
from tfplace.measurement.calibration.device_figures import (
    measure_ops,
    measure_steps,
    slot_counts,
    split_overhead,
)


def test_steps_by_hand() -> None:
    cluster = find_cluster("workers:2")
    first, _ = cluster.device_names
    drift = np.array([0.0, 1e-3, 2e-3, 3e-3])  # the machine gets slower, for all probes alike

    def seconds(devices: tuple[str, ...], num_fetches: int) -> np.ndarray:
        dispatch = {1: 0.95e-3 if devices == (first,) else 1.6e-3, 2: 1.7e-3}[len(devices)]
        fetch = 4e-4 if devices == (first,) else 6e-4
        return drift + dispatch - 1.5e-3 + num_fetches * fetch

    # Medians are 1.5e-3 of drift and what else is said: 0.85 ms of all steps, the rest of each.
    figures = measure_steps(cluster, FakeProber(seconds), 0.0)
    assert figures.overhead_seconds == pytest.approx(0.85e-3)
    assert figures.device_seconds == pytest.approx((0.1e-3, 0.75e-3))
    assert figures.fetch_seconds == pytest.approx(5e-4)
    assert figures.spread == pytest.approx(1.5e-3 / 0.95e-3)  # of the quickest step


def test_the_overhead_of_a_step_is_split() -> None:
    overhead, shares = split_overhead([0.95e-3, 1.6e-3], 1.7e-3)
    assert overhead == pytest.approx(0.85e-3)
    assert shares == pytest.approx((0.1e-3, 0.75e-3))
    assert split_overhead([2e-4], 2e-4) == (2e-4, (0.0,))
    # All at once quicker than the least alone, by noise: nothing becomes negative.
    assert split_overhead([1.0, 2.0], 0.5) == (1.0, (0.0, 1.0))


def _step_seconds(kind: str, count: int) -> float:
    """A step takes 1 ms, a tiny op 0.25 us, three products 6 ms on two slots, a stream 5 ms."""
    if kind == "products":
        return 1e-3 + math.ceil(count / 2) * 6e-3
    return 1e-3 + {"idle": 0.0, "chain": 16 * 0.25e-6, "stream": 5e-3}[kind] * count


def test_ops_of_a_cpu_by_hand() -> None:
    device = Device("/device:CPU:0", "CPU", 1, cores=2)
    figures = measure_ops(device, FakeProber(_step_seconds), 0.0)
    assert figures.op_seconds == pytest.approx(0.25e-6)
    assert figures.slots == 2
    assert (figures.product_side, figures.product_seconds) == (384, pytest.approx(2e-3))
    assert figures.seconds_of_count == pytest.approx({1: 6e-3, 2: 6e-3, 3: 12e-3, 4: 12e-3})
    # Two vectors of 16 MiB are read and one is written in 5 ms.
    assert figures.stream_bytes_per_second == pytest.approx(3 * 2**24 / 5e-3)


def test_a_gpu_streams_through_memory_of_its_own() -> None:
    device = Device("/device:GPU:0", "GPU", 1)
    figures = measure_ops(device, FakeProber(_step_seconds), 0.0)
    assert (figures.product_side, figures.stream_bytes_per_second) == (2048, 0.0)


def test_noise_makes_no_time_negative() -> None:
    device = Device("/device:CPU:0", "CPU", 1)
    figures = measure_ops(device, FakeProber(lambda kind, count: 1.0 / (1 + count)), 0.0)
    assert figures.op_seconds == 0.0
    assert set(figures.seconds_of_count.values()) == {1e-9}


def test_as_many_ops_at_once_as_twice_the_cores() -> None:
    assert slot_counts(Device("/device:CPU:0", "CPU", 1)) == [1, 2]
    assert slot_counts(Device("/device:CPU:0", "CPU", 1, cores=3)) == [1, 2, 3, 4, 6]
    assert slot_counts(Device("/device:CPU:0", "CPU", 1, cores=64)) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert slot_counts(Device("/device:GPU:0", "GPU", 1, cores=80)) == [1, 2, 3, 4]
