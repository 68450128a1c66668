"""Slowdowns of devices that share memory, and where they go."""

import dataclasses

import numpy as np
import pytest

from graphs.clusters import named_clusters
from graphs.clusters.cluster_file import cluster_from_json, cluster_to_json
from graphs.clusters.discovery import find_cluster
from graphs.executor_model import executor_of
from tests.tfplace.measurement.calibration.fake_prober import FakeProber
from tfplace.measurement.calibration.device_figures import hosts, measure_contention, slowdown


def test_all_at_once_against_the_slowest_alone():
    seconds = {
        ("a",): np.array([1.0, 2.0, 1.0]),
        ("b",): np.array([1.5, 1.0, 1.0]),
        ("a", "b"): np.array([1.8, 2.2, 1.5]),
    }
    assert slowdown(seconds, ("a", "b")) == pytest.approx(0.2)  # of 0.2, 0.1, 0.5
    assert slowdown({**seconds, ("a", "b"): np.full(3, 0.5)}, ("a", "b")) == 0.0


def test_tasks_of_one_host_share_memory_and_gpus_do_not():
    workers = find_cluster("workers:2")
    assert hosts(workers) == [workers.device_names]
    apart = [dataclasses.replace(d, address=f"host{i}:1") for i, d in enumerate(workers.devices)]
    assert hosts(dataclasses.replace(workers, devices=apart)) == []
    assert hosts(named_clusters.named("k80x2")) == []


def test_longer_chains_show_the_slowdown_whatever_a_step_takes():
    names = find_cluster("workers:2").device_names
    slowdowns = {"compute": 0.25, "memory": 0.5}

    def seconds(kind, devices, length, copy):
        # A step takes 1 s and an op 0.1 s, longer beside others; only the last copy is undisturbed.
        slower = (1.0 + slowdowns[kind] * (len(devices) > 1)) * (3 - copy)
        return 1.0 + 0.1 * length * slower

    measured = measure_contention(names, FakeProber(seconds), 0.0)
    assert measured.compute_slowdown == pytest.approx(0.25)
    assert measured.memory_slowdown == pytest.approx(0.5)


def test_slowdowns_go_into_the_file_and_to_ops_by_their_share_of_memory():
    cluster = find_cluster("workers:2")
    slower = [
        dataclasses.replace(device, compute_slowdown=0.25, memory_slowdown=0.5)
        for device in cluster.devices
    ]
    value = cluster_to_json(dataclasses.replace(cluster, devices=slower))
    assert [d["memory_slowdown"] for d in value["devices"]] == [0.5, 0.5]
    assert "compute_slowdown" not in cluster_to_json(find_cluster("workers:2"))["devices"][0]
    value["links"][0]["sender_busy_seconds"] = 1e-5
    executor = executor_of(cluster_from_json(value), ["MatMul", "Add"], np.array([0.0, 0.5]))
    assert executor is not None and executor.shares_memory is not None
    np.testing.assert_array_equal(executor.op_slowdown, [[0.25, 0.25], [0.375, 0.375]])
    np.testing.assert_array_equal(executor.shares_memory, [[False, True], [True, False]])
