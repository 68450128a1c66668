"""The four channel rules."""

import dataclasses

import numpy as np
import pytest

from graphs.cluster import COMMUNICATION_RULES, Cluster, Device

U = -1


def _cluster(communication):
    devices = tuple(Device(f"/device:CPU:{i}", "CPU", 1) for i in range(3))
    return Cluster(communication, communication, devices, np.zeros((3, 3)), np.ones((3, 3)))


@pytest.mark.parametrize(
    ("communication", "first", "second"),
    [
        ("duplex", [[U, 0, 0], [1, U, 1], [2, 2, U]], [[U, 4, 5], [3, U, 5], [3, 4, U]]),
        ("sender", [[U, 0, 0], [1, U, 1], [2, 2, U]], np.full((3, 3), U)),
        ("half_duplex", [[U, 0, 0], [1, U, 1], [2, 2, U]], [[U, 1, 2], [0, U, 2], [0, 1, U]]),
        ("pairwise", [[U, 1, 2], [3, U, 5], [6, 7, U]], np.full((3, 3), U)),
    ],
)
def test_channels(communication, first, second):
    channels = _cluster(communication).link_channels()
    assert channels.dtype == np.int32
    np.testing.assert_array_equal(channels[..., 0], first)
    np.testing.assert_array_equal(channels[..., 1], second)


def test_every_rule_has_channels_for_every_pair():
    for communication in COMMUNICATION_RULES:
        channels = _cluster(communication).link_channels()
        assert (channels[..., 0] >= 0).sum() == 6


def test_names_and_immutability():
    cluster = _cluster("duplex")
    assert cluster.num_devices == 3
    assert cluster.device_names == ("/device:CPU:0", "/device:CPU:1", "/device:CPU:2")
    with pytest.raises(dataclasses.FrozenInstanceError):
        cluster.name = "other"


def test_dispatch_counts_the_devices_that_take_part():
    devices = [
        Device(f"/device:CPU:{i}", "CPU", 1, step_seconds=seconds)
        for i, seconds in enumerate([1e-4, 2e-4, 4e-4])
    ]
    none = np.zeros((3, 3))
    cluster = Cluster("c", "duplex", devices, none, none, "", 1e-3, fetch_seconds=2e-3)
    assert cluster.dispatch_seconds(np.array([2, 0, 2, 0])) == pytest.approx(1.5e-3)
    assert cluster.dispatch_seconds(np.array([1])) == pytest.approx(1.2e-3)
    assert cluster.dispatch_seconds(np.array([1, 1]), 2) == pytest.approx(5.2e-3)
