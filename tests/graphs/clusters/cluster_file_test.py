"""Cluster files: what they mean, and that they are read strictly."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs.cluster import COMMUNICATION_RULES, Cluster, Device, TransferWork
from graphs.clusters import named_clusters
from graphs.clusters.cluster_file import cluster_from_json, cluster_to_json, read_cluster
from graphs.clusters.json_values import parse_bytes
from graphs.errors import ClusterError

PAIR = {
    "name": "pair",
    "devices": [
        {"name": "/device:CPU:0", "memory": "16GB"},
        {
            "name": "/device:GPU:0",
            "type": "GPU",
            "memory": "12GiB",
            "slots": 2,
            "efficiency": 0.5,
            "architecture": "7.0",
            "cores": 80,
            "frequency_mhz": 1530,
            "bandwidth_bytes_per_second": 9e11,
        },
    ],
    "links": [
        {
            "from": "/device:CPU:0",
            "to": "/device:GPU:0",
            "bytes_per_second": 1.2e10,
            "latency_seconds": 1e-5,
        }
    ],
    "default_link": {"bytes_per_second": 6e9, "latency_seconds": 0},
}


def _equal(a: Cluster, b: Cluster) -> bool:
    return (
        (a.name, a.communication, a.devices) == (b.name, b.communication, b.devices)
        and np.array_equal(a.link_latency, b.link_latency)
        and np.array_equal(a.link_bytes_per_second, b.link_bytes_per_second)
    )


def test_a_whole_file():
    cluster = cluster_from_json(PAIR)
    assert (cluster.name, cluster.communication) == ("pair", "duplex")
    assert cluster.devices == (
        Device("/device:CPU:0", "CPU", 16 * 10**9),
        Device(
            "/device:GPU:0",
            "GPU",
            12 * 2**30,
            slots=2,
            efficiency=0.5,
            architecture="7.0",
            cores=80,
            frequency_mhz=1530,
            bandwidth_bytes_per_second=9e11,
        ),
    )
    np.testing.assert_array_equal(cluster.link_bytes_per_second, [[np.inf, 1.2e10], [6e9, np.inf]])
    np.testing.assert_array_equal(cluster.link_latency, [[0, 1e-5], [0, 0]])


@pytest.mark.parametrize("name", named_clusters.names())
def test_named_clusters_survive_a_round_trip(name, tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster_to_json(named_clusters.named(name))))
    assert _equal(read_cluster(str(path)), named_clusters.named(name))


_positive = st.floats(min_value=1e-9, max_value=1e18)


@given(
    memory=st.lists(st.integers(1, 2**50), min_size=1, max_size=4),
    rate=_positive,
    latency=st.floats(min_value=0, max_value=10),
    communication=st.sampled_from(COMMUNICATION_RULES),
    text=st.text(max_size=10),
)
def test_any_cluster_survives_a_round_trip(memory, rate, latency, communication, text):
    size = len(memory)
    devices = tuple(
        Device(f"/job:worker/task:{i}/device:CPU:0", "CPU", m, address="h:1", source=text)
        for i, m in enumerate(memory)
    )
    rates, latencies = np.full((size, size), rate), np.full((size, size), latency)
    np.fill_diagonal(rates, np.inf)
    np.fill_diagonal(latencies, 0)
    cluster = Cluster("x" + text, communication, devices, latencies, rates)
    assert _equal(cluster_from_json(json.loads(json.dumps(cluster_to_json(cluster)))), cluster)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("12GiB", 12 * 2**30),
        ("16GB", 16 * 10**9),
        (" 1.5 kib", 1536),
        ("7", 7),
        (5, 5),
        (2.0, 2),
        ("3TB", 3 * 10**12),
    ],
)
def test_sizes(text, size):
    assert parse_bytes("'memory'", text) == size


@pytest.mark.parametrize(
    "bad", ["", "12GiBs", "-1GB", "0", 0, -3, True, None, float("nan"), float("inf"), [], "1e9"]
)
def test_no_sizes(bad):
    with pytest.raises(ClusterError, match=r"'memory' is .*; wanted a positive size"):
        parse_bytes("'memory'", bad)


def test_calibrated_figures_survive_a_round_trip():
    work = TransferWork(
        *(np.array([[0, figure], [figure / 2, 0]]) for figure in (3e-5, 5e-10, 4e-5, 6e-10))
    )
    devices = tuple(
        Device(f"/job:worker/task:{i}/device:CPU:0", "CPU", 1, op_seconds=2e-7, step_seconds=6e-4)
        for i in range(2)
    )
    rate, latency = np.array([[np.inf, 1e9], [3e9, np.inf]]), np.array([[0, 1e-4], [2e-4, 0]])
    taught = {"speed of CPU": (0.5, 0.4, 0.6), "step_start_seconds": (0.0, 0.0, 1e-3)}
    figures = "workers:2", 9e-4, 4e-4, work, taught
    cluster = Cluster("workers:2", "duplex", devices, latency, rate, *figures)
    value = cluster_to_json(cluster)
    assert value["links"][1] == {
        "from": "/job:worker/task:1/device:CPU:0",
        "to": "/job:worker/task:0/device:CPU:0",
        "bytes_per_second": 3e9,
        "latency_seconds": 2e-4,
        "sender_busy_seconds": 1.5e-5,
        "sender_busy_seconds_per_byte": 2.5e-10,
        "receiver_busy_seconds": 2e-5,
        "receiver_busy_seconds_per_byte": 3e-10,
    }
    read = cluster_from_json(json.loads(json.dumps(value)))
    assert _equal(read, cluster)
    assert (read.origin, read.step_overhead_seconds) == ("workers:2", 9e-4)
    assert (read.fetch_seconds, read.taught) == (4e-4, taught)
    for field in (
        "sender_seconds",
        "sender_seconds_per_byte",
        "receiver_seconds",
        "receiver_seconds_per_byte",
    ):
        np.testing.assert_array_equal(getattr(read.transfer_work, field), getattr(work, field))


def test_a_default_link_may_say_what_transfers_take():
    value = copy.deepcopy(PAIR)
    value["default_link"]["receiver_busy_seconds"] = 4e-5
    work = cluster_from_json(value).transfer_work
    np.testing.assert_array_equal(work.receiver_seconds, [[0, 0], [4e-5, 0]])
    np.testing.assert_array_equal(work.sender_seconds, np.zeros((2, 2)))
    assert cluster_from_json(PAIR).transfer_work is None


def _changed(path, value):
    """PAIR with the value at a path replaced, or removed where value is None."""
    changed = copy.deepcopy(PAIR)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["nam"], "x", "the cluster has an unknown key 'nam'; did you mean 'name'?"),
        (["name"], None, "the cluster has no 'name', which is required"),
        (["name"], "", "the cluster's 'name' is empty"),
        (["communication"], "duplx", "'communication' is 'duplx'.*did you mean 'duplex'?"),
        (["devices"], [], "at least one device"),
        (["devices"], {}, "at least one device"),
        (["devices", 0], 3, "device 0 is 3; wanted a JSON object"),
        (["devices", 0, "memory"], None, "device 0 has no 'memory'"),
        (["devices", 0, "memroy"], 1, "unknown key 'memroy'; did you mean 'memory'?"),
        (["devices", 0, "memory"], "many", "'memory' of device '/device:CPU:0' is 'many'"),
        (["devices", 0, "name"], "CPU:0", "named 'CPU:0'; wanted a form like /device:GPU:0"),
        (["devices", 0, "name"], "/device:GPU:0", "'/device:GPU:0' stands there twice"),
        (["devices", 0, "name"], "/device:TPU:0", "is a TPU; only CPU and GPU"),
        (["devices", 0, "type"], "GPU", "has 'type' 'GPU'; its name says 'CPU'"),
        (["devices", 1, "slots"], 0, "'slots' 0; wanted a number above 0"),
        (["devices", 1, "slots"], 1.5, "'slots' 1.5; wanted a whole number"),
        (["devices", 1, "slots"], True, "'slots' true; wanted a number above 0"),
        (["devices", 1, "efficiency"], 1.1, "'efficiency' 1.1; wanted 0 < efficiency <= 1"),
        (["devices", 1, "efficiency"], float("nan"), "'efficiency' nan; wanted a number above 0"),
        (["devices", 1, "cores"], "80", "'cores' \"80\"; wanted a number above 0"),
        (["devices", 1, "architecture"], 7.0, "'architecture' 7.0; wanted a string"),
        (["links"], {}, "'links' has to be a list"),
        (["links", 0, "to"], "/device:GPU:1", "names device '/device:GPU:1', which there is not"),
        (["links", 0, "to"], "/device:CPU:0", "leads from '/device:CPU:0' to itself"),
        (["links", 0, "latency_seconds"], -1, "'latency_seconds' -1; wanted a number of at least"),
        (["links", 0, "bytes_per_second"], 0, "'bytes_per_second' 0; wanted a number above 0"),
        (["links", 0, "latency_seconds"], None, "link 0 has no 'latency_seconds'"),
        (["links"], PAIR["links"] * 2, "link 1 is a second link from '/device:CPU:0'"),
        (["links", 0, "sender_busy_secnds"], 1, "did you mean 'sender_busy_seconds'?"),
        (["links", 0, "sender_busy_seconds"], -1, "'sender_busy_seconds' -1; wanted a number of"),
        (["taught"], [], "'taught' is \\[\\]; wanted {number"),
        (["taught"], {"link_latncy": [1, 1, 2]}, "'taught' says 'link_latncy'"),
        (["taught"], {"link_latency": [0, 0, 2]}, "low <= value <= high"),
        (["taught"], {"link_latency": [3, 1, 2]}, "low <= value <= high"),
        (["taught"], {"link_latency": [1, 1, float("inf")]}, "low <= value <= high"),
        (["origin"], "here", "'origin' is 'here'; wanted what was calibrated: local, workers:N"),
        (["default_link"], None, "no link leads from '/device:GPU:0' to '/device:CPU:0'"),
        (["default_link", "latency"], 1, "did you mean 'latency_seconds'?"),
    ],
)
def test_what_is_wrong_is_said(path, value, message):
    with pytest.raises(ClusterError, match=message.replace("?", r"\?")) as caught:
        cluster_from_json(_changed(path, value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "the cluster is \\[\\]; wanted a JSON object"),
        ('{"name": "a", "name": "b", "devices": []}', "key 'name' stands twice"),
        ("\ufeff{}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"name": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_no_cluster_file(text, message, tmp_path):
    path = tmp_path / "c.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ClusterError, match=f"reading cluster file {path}: .*{message}"):
        read_cluster(str(path))


CPU, GPU = PAIR["devices"]


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([GPU], "there is no CPU among the devices"),
        ([CPU, {**GPU, "name": "/job:worker/task:0/device:GPU:0"}], "or none"),
        ([CPU, {**GPU, "architecture": "Kepler"}], "wanted a compute capability such as '7.0'"),
        ([{**CPU, "address": "somewhere"}], "wanted HOST:PORT"),
        ([{**CPU, "address": "grpc://host:1"}], "wanted HOST:PORT"),
        ([{**CPU, "address": "host:70000"}], "wanted HOST:PORT"),
    ],
)
def test_devices_that_can_not_be_together_or_at_all(devices, message):
    with pytest.raises(ClusterError, match=message):
        cluster_from_json({**PAIR, "links": [], "devices": devices})


@pytest.mark.parametrize("address", ["host:2222", "10.0.0.1:80", "[::1]:2222", ""])
def test_addresses(address):
    name = "/job:worker/task:0/device:CPU:0"
    value = {**PAIR, "links": [], "devices": [{**CPU, "name": name, "address": address}]}
    assert cluster_from_json(value).devices[0].address == address


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(ClusterError, match=r"can't be read \(No such file or directory\); give"):
        read_cluster(str(tmp_path / "none.json"))
