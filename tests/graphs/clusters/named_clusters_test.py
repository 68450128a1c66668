"""The named clusters."""

import numpy as np
import pytest

from graphs.clusters import named_clusters
from graphs.errors import ClusterError
from graphs.pricing.costs import flops_per_second


def test_names():
    assert named_clusters.names() == (
        "k80x2",
        "k80x4",
        "k80x8",
        "k40x8",
        "p100x2",
        "p100x4",
        "v100x4",
        "v100x8",
        "a100x8",
        "h100x8",
        "t4x4",
    )


def test_two_k80():
    cluster = named_clusters.named("k80x2")
    assert cluster.device_names == ("/device:CPU:0", "/device:GPU:0", "/device:GPU:1")
    assert cluster.communication == "duplex"
    gpu = cluster.devices[1]
    assert (gpu.memory_bytes, gpu.cores, gpu.frequency_mhz) == (12 * 2**30, 13, 875)
    assert (gpu.architecture, gpu.efficiency, gpu.precision) == ("3.7", 1.0, "tf32")
    rate = np.array([[np.inf, 10, 10], [10, np.inf, 7.6], [10, 7.6, np.inf]]) * 1e9
    np.testing.assert_array_equal(cluster.link_bytes_per_second, rate)
    latency = np.array([[0, 30, 30], [30, 0, 25], [30, 25, 0]]) / 1e6
    np.testing.assert_allclose(cluster.link_latency, latency)


@pytest.mark.parametrize("name", named_clusters.names())
def test_every_figure_is_there_and_has_a_source(name):
    cluster = named_clusters.named(name)
    assert cluster.name == name
    assert cluster.num_devices == int(name.partition("x")[2]) + 1
    assert [d.type for d in cluster.devices] == ["CPU"] + ["GPU"] * (cluster.num_devices - 1)
    assert all(device.source and 0 < device.efficiency <= 1 for device in cluster.devices)
    assert all(device.architecture for device in cluster.devices)
    np.testing.assert_array_equal(cluster.link_latency, cluster.link_latency.T)
    np.testing.assert_array_equal(cluster.link_bytes_per_second, cluster.link_bytes_per_second.T)


@pytest.mark.parametrize(
    ("name", "data_sheet"),
    [
        ("k80x2", 4.37e12),
        ("k40x8", 5.04e12),
        ("p100x2", 9.34e12),
        ("v100x4", 15.7e12),
        ("a100x8", 19.5e12),
        ("h100x8", 66.9e12),
        ("t4x4", 8.14e12),
    ],
)
def test_peak_rate_is_the_data_sheets(name, data_sheet):
    assert flops_per_second(named_clusters.named(name).devices[1]) == pytest.approx(
        data_sheet, rel=0.01
    )


def test_nvlink_mesh_of_a_dgx1():
    rate = named_clusters.named("v100x8").link_bytes_per_second / 1e9
    np.testing.assert_array_equal(rate[1, 1:], [np.inf, 12.1, 12.1, 24.2, 24.2, 12, 12, 12])
    np.testing.assert_array_equal(rate[0, 1:], [12] * 8)
    links = np.where(np.isfinite(rate[1:, 1:]) & (rate[1:, 1:] > 12), rate[1:, 1:] / 12.1, 0)
    np.testing.assert_array_equal(links.sum(axis=1), [6] * 8)


def test_unknown_name_is_told_the_nearest():
    with pytest.raises(ClusterError, match="'k80x3': there is none; did you mean 'k80x8'"):
        named_clusters.named("k80x3")
