"""A tiny training graph on disk, once for all tests of the commands."""

import json

import pytest

from graphs import zoo
from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.named_clusters import named


@pytest.fixture(scope="session")
def tiny_rnnlm(tmp_path_factory):
    """Path of a tiny RNNLM training graph with an expert's marks."""
    path = str(tmp_path_factory.mktemp("models") / "rnnlm.pb")
    zoo.write(zoo.build("rnnlm", size="tiny"), path)
    return path


@pytest.fixture(scope="session")
def slow_cpu_cluster(tmp_path_factory):
    """Two equal slow GPUs with fast links: worth splitting over even for tiny ops."""
    value = cluster_to_json(named("k80x2"))
    value["name"] = "two_equal"
    value["default_link"] = {"bytes_per_second": 1e12, "latency_seconds": 1e-9}
    value.pop("links", None)
    for device in value["devices"]:
        device["efficiency"] = 1e-3 if device["type"] == "GPU" else 1e-6
        device.pop("precision", None)  # one efficiency for all kernels
    path = tmp_path_factory.mktemp("clusters") / "two_equal.json"
    path.write_text(json.dumps(value))
    return str(path)
