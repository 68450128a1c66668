"""Cluster files that describe one of several hosts."""

import json

import numpy as np
import pytest

from graphs.clusters.cluster_file import cluster_from_json, cluster_to_json, read_cluster
from graphs.clusters.named_clusters import named
from graphs.errors import ClusterError
from tests.documents import DOCS, blocks
from tfplace.measurement.presence import is_present

HOST = {
    "name": "two",
    "devices": [
        {"name": "/device:CPU:0", "memory": "16GB"},
        {"name": "/device:GPU:0", "memory": "12GB"},
    ],
    "default_link": {"bytes_per_second": 10.0, "latency_seconds": 1.0},
    "hosts": 2,
    "host_link": {"bytes_per_second": 2.0, "latency_seconds": 3.0},
}
CPU_0, GPU_0 = "/job:worker/task:0/device:CPU:0", "/job:worker/task:0/device:GPU:0"


def _changed(**changes):
    return cluster_from_json({k: v for k, v in {**HOST, **changes}.items() if v is not None})


def test_each_host_has_its_devices_and_links():
    cluster = _changed()
    others = [name.replace("task:0", "task:1") for name in (CPU_0, GPU_0)]
    assert cluster.device_names == (CPU_0, GPU_0, *others)
    inf = np.inf
    assert cluster.link_bytes_per_second.tolist() == [
        [inf, 10, 2, 2], [10, inf, 2, 2], [2, 2, inf, 10], [2, 2, 10, inf]
    ]  # fmt: skip
    assert cluster.link_latency.tolist() == [
        [0, 1, 3, 3], [1, 0, 3, 3], [3, 3, 0, 1], [3, 3, 1, 0]
    ]  # fmt: skip
    assert [device.memory_bytes for device in cluster.devices] == [16e9, 12e9] * 2


@pytest.mark.parametrize("rule", ["duplex", "sender", "half_duplex", "pairwise"])
def test_transfers_between_hosts_share_the_hosts_cards(rule):
    cluster = _changed(communication=rule)
    channels = cluster.link_channels()
    inside = channels[:2, :2]
    np.testing.assert_array_equal(channels[0, 2], channels[1, 3])  # one card out, one in
    np.testing.assert_array_equal(channels[0, 3], channels[1, 2])
    assert not set(channels[0, 2][channels[0, 2] >= 0]) & set(inside[inside >= 0].tolist())
    back_is_the_same = set(channels[2, 0].tolist()) == set(channels[0, 2].tolist())
    assert back_is_the_same == (rule == "half_duplex")
    assert channels.max() < 2 * cluster.num_devices**2
    alone = _changed(communication=rule, host_link={**HOST["host_link"], "shared": False})
    plain = cluster_to_json(alone)
    np.testing.assert_array_equal(alone.link_channels(), cluster_from_json(plain).link_channels())
    assert len(np.unique(alone.link_channels())) > len(np.unique(inside))


def test_a_file_of_hosts_written_out_is_the_same_cluster():
    cluster = _changed()
    again = cluster_from_json(cluster_to_json(cluster))
    assert again.devices == cluster.devices
    np.testing.assert_array_equal(again.link_channels(), cluster.link_channels())
    np.testing.assert_array_equal(again.link_latency, cluster.link_latency)


def test_hosts_are_here_only_where_they_have_addresses():
    addresses = ["10.0.0.1:2222", "10.0.0.2:2222"]
    cluster = _changed(hosts=addresses)
    assert [device.address for device in cluster.devices] == [x for x in addresses for _ in "ab"]
    assert is_present(cluster) and not is_present(_changed())
    assert not is_present(_changed(devices=HOST["devices"][:1]))


def test_what_transfers_take_of_devices_differs_inside_and_between():
    busy = {"sender_busy_seconds": 0.5, **HOST["host_link"]}
    work = _changed(host_link=busy).transfer_work
    assert work.sender_seconds.tolist()[0] == [0, 0, 0.5, 0.5]
    assert _changed().transfer_work is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hosts": 0}, "'hosts' 0; wanted a number above 0"),
        ({"hosts": -3}, "'hosts' -3"),
        ({"hosts": 2.5}, "whole number"),
        ({"hosts": "8"}, "'hosts' \"8\""),
        ({"hosts": True}, "'hosts' true"),
        ({"hosts": []}, "at least one address"),
        ({"hosts": [1]}, "at least one address"),
        ({"hosts": ["a:1", "a:1"]}, "stands twice in 'hosts'"),
        ({"hosts": ["nowhere"]}, "wanted HOST:PORT"),
        ({"hosts": 10**9}, "wanted at most 1,024"),
        ({"hosts": 600}, "600 hosts of 2 devices are 1,200 devices"),
        ({"host_link": None}, "give the 2 'hosts' a 'host_link'"),
        ({"hosts": None}, "but no 'hosts'"),
        ({"host_link": 3}, "'host_link' is 3"),
        ({"host_link": {"bytes_per_second": 1}}, "has no 'latency_seconds'"),
        ({"host_link": {**HOST["host_link"], "shred": 1}}, "did you mean 'shared'"),
        ({"host_link": {**HOST["host_link"], "shared": 1}}, "wanted true or false"),
        ({"devices": [{"name": CPU_0, "memory": 1}], "default_link": None}, "which host it is on"),
        ({"devices": [{**HOST["devices"][0], "network": "a"}]}, "which host it is on"),
        ({"host": 8}, "did you mean 'hosts'"),
    ],
)
def test_what_can_not_be_says_so(changes, words):
    with pytest.raises(ClusterError) as error:
        _changed(**changes)
    assert words in str(error.value)


def test_the_page_writes_eight_hosts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = [each for each in blocks(DOCS / "clusters.md", "python") if "hosts" in each]
    exec(compile(code, "clusters.md", "exec"), {})
    cluster = read_cluster("eight_hosts.json")
    assert cluster.num_devices == 8 * named("v100x8").num_devices
    assert json.loads((tmp_path / "eight_hosts.json").read_text())["hosts"] == 8
    (other,) = [each for each in blocks(DOCS / "clusters.md", "python") if "mine" in each]
    exec(compile(other, "clusters.md", "exec"), {})
    assert read_cluster("mine.json").num_devices == named("v100x4").num_devices
