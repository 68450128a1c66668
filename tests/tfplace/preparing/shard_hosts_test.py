"""On which host each shard lies, by what a cluster says of its devices."""

import json

import pytest

from graphs.cluster import Cluster, Device
from graphs.clusters.cluster_file import cluster_from_json
from graphs.clusters.discovery import tf_config_cluster
from graphs.clusters.named_clusters import named
from tfplace.preparing.prepare import places_of_shards

GPUS = {
    "name": "two",
    "devices": [
        {"name": "/device:CPU:0", "memory": "16GB"},
        {"name": "/device:GPU:0", "memory": "12GB"},
        {"name": "/device:GPU:1", "memory": "12GB"},
    ],
    "default_link": {"bytes_per_second": 10.0, "latency_seconds": 1.0},
    "hosts": 2,
    "host_link": {"bytes_per_second": 2.0, "latency_seconds": 3.0},
}


@pytest.mark.parametrize("shared", [True, False])
def test_gpus_of_two_hosts_are_dealt_shards_in_turn(shared):
    cluster = cluster_from_json({**GPUS, "host_link": {**GPUS["host_link"], "shared": shared}})
    assert places_of_shards(cluster, 4) == ((0, 0), (0, 1), (1, 2), (1, 3))
    assert places_of_shards(cluster, 6) == ((0, 0), (0, 1), (1, 2), (1, 3), (0, 0), (0, 1))
    assert places_of_shards(cluster, 2) == ((0, 0), (0, 1))


def test_tasks_of_one_address_are_one_host():
    tasks = ["10.0.0.1:2222", "10.0.0.1:2223", "10.0.0.2:2222"]
    cluster = tf_config_cluster(json.dumps({"cluster": {"worker": tasks}}))
    assert places_of_shards(cluster, 4) == ((0, 0), (0, 1), (1, 2), (0, 0))


def test_workers_and_named_clusters_are_one_host():
    workers = [Device(f"/job:worker/task:{task}/device:CPU:0", "CPU", 1) for task in range(2)]
    assert places_of_shards(Cluster("workers:2", "duplex", workers, None, None), 4) == (
        (0, 0), (0, 1), (0, 0), (0, 1),
    )  # fmt: skip
    assert places_of_shards(named("k80x4"), 4) == tuple((0, device) for device in range(4))
