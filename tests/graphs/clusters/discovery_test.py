"""What `--cluster` values mean on this host."""

import dataclasses
import json
import os

import numpy as np
import pytest

from graphs.clusters import named_clusters
from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.discovery import find_cluster, gpu_split_bytes, tf_config_cluster, with_memory
from graphs.errors import ClusterError, UsageError


def test_local_is_led_by_this_hosts_cpu():
    cluster = find_cluster("local")
    cpu = cluster.devices[0]
    assert (cluster.name, cpu.name, cpu.type) == ("local", "/device:CPU:0", "CPU")
    assert cpu.cores == len(os.sched_getaffinity(0))
    assert cpu.memory_bytes > 2**28
    assert cpu.slots == 1


def test_workers_share_the_host():
    one, three = find_cluster("workers:1"), find_cluster("workers:3")
    assert three.name == "workers:3"
    assert three.device_names == (
        "/job:worker/task:0/device:CPU:0",
        "/job:worker/task:1/device:CPU:0",
        "/job:worker/task:2/device:CPU:0",
    )
    assert {device.cores for device in three.devices} == {1}
    assert {device.memory_bytes for device in three.devices} == {one.devices[0].memory_bytes // 3}
    assert three.link_latency[0, 1] == 0.3e-3
    assert three.link_bytes_per_second[2, 0] == 2e9
    assert (np.diag(three.link_latency) == 0).all()


@pytest.mark.parametrize("spec", ["workers:0", "workers:", "workers", "workers:two", "workers:-1"])
def test_no_number_of_workers(spec):
    with pytest.raises(ClusterError, match="is no number of workers; wanted a form like workers:2"):
        find_cluster(spec)


def test_names_and_files(tmp_path):
    assert find_cluster("k80x2").devices == named_clusters.named("k80x2").devices
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(cluster_to_json(named_clusters.named("t4x4"))))
    assert find_cluster(str(path)).devices == named_clusters.named("t4x4").devices


def test_unknown_name_lists_the_known():
    with pytest.raises(
        ClusterError, match=r"none; wanted .*workers:N.*k80x2.*\.json; did you mean 'local'\?"
    ):
        find_cluster("locl")


def test_tf_config_has_a_cpu_per_task_chief_first():
    text = json.dumps(
        {
            "cluster": {"ps": ["b:3"], "worker": {"0": "a:1", "10": "b:1"}, "chief": ["a:0"]},
            "task": {"type": "worker", "index": 0},
        }
    )
    cluster = tf_config_cluster(text)
    assert [(d.name, d.address) for d in cluster.devices] == [
        ("/job:chief/task:0/device:CPU:0", "a:0"),
        ("/job:worker/task:0/device:CPU:0", "a:1"),
        ("/job:worker/task:10/device:CPU:0", "b:1"),
        ("/job:ps/task:0/device:CPU:0", "b:3"),
    ]
    assert cluster.link_bytes_per_second[0, 1] == 1e9


def test_tf_config_on_one_host_uses_its_loopback():
    cluster = tf_config_cluster('{"cluster": {"worker": ["localhost:1", "localhost:2"]}}')
    assert cluster.link_bytes_per_second[0, 1] == 2e9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not set"),
        ("{", "TF_CONFIG: Expecting property name"),
        ("[]", "no jobs under 'cluster'"),
        ("{}", "no jobs under 'cluster'"),
        ('{"cluster": {"my job": ["a:1"]}}', "'my job' is no name of a job"),
        ('{"cluster": {"worker": "a:1"}}', "not a list of host:port"),
        ('{"cluster": {"worker": {"x": "a:1"}}}', "has tasks x, not numbers"),
        ('{"cluster": {}}', "it names no task"),
    ],
)
def test_malformed_tf_config(text, message):
    with pytest.raises(ClusterError, match=message):
        tf_config_cluster(text)


def test_tf_config_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}}')
    assert find_cluster("tf_config").device_names == ("/job:worker/task:0/device:CPU:0",)


def _one_gpu(monkeypatch):
    """TensorFlow and Grappler as they would answer beside one GPU of 10 GB."""
    import tensorflow as tf
    from tensorflow.core.protobuf import device_properties_pb2

    properties = device_properties_pb2.NamedDevice(name="/GPU:0")
    properties.properties.type = "GPU"
    properties.properties.memory_size = 10 * 10**9
    properties.properties.num_cores = 13
    properties.properties.frequency = 875
    properties.properties.bandwidth = 240 * 10**6
    properties.properties.environment["architecture"] = "3.7"
    shown = {"GPU": [object()], "CPU": [object()]}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: shown[kind])
    monkeypatch.setattr("graphs.clusters.this_host.list_devices", lambda: [properties])


def test_one_gpu_beside_the_cpu(monkeypatch):
    _one_gpu(monkeypatch)
    cluster = find_cluster("local")
    assert cluster.device_names == ("/device:CPU:0", "/device:GPU:0")
    gpu = cluster.devices[1]
    assert (gpu.memory_bytes, gpu.cores, gpu.precision) == (10 * 10**9, 13, "tf32")
    assert gpu.bandwidth_bytes_per_second == 240e9
    assert gpu_split_bytes(cluster) == ()


MIB = 2**20


def _gpus(monkeypatch, devices, num_gpus):
    """TensorFlow with GPUs, and Grappler's list of (name, type, figures), in its own order."""
    import tensorflow as tf
    from tensorflow.core.protobuf import device_properties_pb2

    listed = []
    for name, kind, figures in devices:
        device = device_properties_pb2.NamedDevice(name=f"/job:localhost/replica:0/task:0{name}")
        device.properties.type = kind
        for figure, value in figures.items():
            setattr(device.properties, figure, value)
        listed.append(device)
    shown = {"GPU": [object()] * num_gpus, "CPU": [object()]}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: shown[kind])
    monkeypatch.setattr("graphs.clusters.this_host.list_devices", lambda: listed)
    return find_cluster("local").devices[1:]


def test_gpus_have_their_own_figures_in_whatever_order_they_are_listed(monkeypatch):
    """Two K80s by https://github.com/aistein/dlprof misc/dual_gpu_reasonable_placement_profile.txt:
    10728 and 10744 MB, 562 MHz; Grappler keeps devices by the hash of their names."""
    devices = [
        ("/device:GPU:1", "GPU", {"memory_size": 10744 * MIB, "frequency": 562}),
        ("/device:CPU:0", "CPU", {"memory_size": 256 * MIB}),
        ("/device:GPU:0", "GPU", {"memory_size": 10728 * MIB, "frequency": 562}),
    ]
    gpus = _gpus(monkeypatch, devices, 2)
    assert [(d.name, d.memory_bytes // MIB, d.frequency_mhz) for d in gpus] == [
        ("/device:GPU:0", 10728, 562),
        ("/device:GPU:1", 10744, 562),
    ]
    assert gpu_split_bytes(find_cluster("gpu_split:2")) == (int(10728 * MIB * 0.9) // 2,) * 2


def test_devices_of_xla_are_no_gpus(monkeypatch):
    """Eight K80s, an XLA_GPU beside each, an XLA_CPU and the CPU: 18 devices of TensorFlow 1.14 by
    https://github.com/rwth-i6/returnn/issues/262. Grappler has no type for those of XLA."""
    memory = {6: 10746 * MIB, 7: 10744 * MIB}
    devices = [
        (f"/device:GPU:{i}", "GPU", {"memory_size": memory.get(i, 1)})
        for i in (3, 7, 0, 5, 1, 4, 2, 6)
    ]
    devices += [(f"/device:XLA_GPU:{i}", "", {"memory_size": 2**34}) for i in range(8)]
    devices += [("/device:XLA_CPU:0", "", {"memory_size": 2**34}), ("/device:CPU:0", "CPU", {})]
    gpus = _gpus(monkeypatch, devices, 8)
    assert [device.name for device in gpus] == [f"/device:GPU:{i}" for i in range(8)]
    assert {i: gpus[i].memory_bytes for i in memory} == memory


@pytest.mark.parametrize(
    ("mhz", "cores", "bus_bits", "memory_khz", "told_gib"),
    [
        # Tesla V100-SXM2-16GB: https://gist.github.com/pstjohn/025df83800ea920e5fa114753092138d
        (1530, 80, 4096, 877_000, 836.37),
        # GeForce RTX 2080 Ti: https://github.com/tensorflow/tensorflow/issues/40814
        (1635, 68, 352, 7_000_000, 573.69),
        # TITAN V: https://github.com/google-parfait/tensorflow-federated/issues/1029
        (1455, 80, 3072, 850_000, 607.97),
    ],
)
def test_bandwidth_is_what_tensorflow_tells(
    monkeypatch, mhz, cores, bus_bits, memory_khz, told_gib
):
    """Each log tells "coreClock … coreCount … deviceMemoryBandwidth"; Grappler has it in KB/s."""
    figures = {
        "memory_size": 10**10,
        "num_cores": cores,
        "frequency": mhz,
        "bandwidth": bus_bits // 8 * memory_khz * 2,
    }
    (gpu,) = _gpus(monkeypatch, [("/device:GPU:0", "GPU", figures)], 1)
    assert (gpu.cores, gpu.frequency_mhz) == (cores, mhz)
    assert gpu.bandwidth_bytes_per_second / 2**30 == pytest.approx(told_gib, abs=0.01)


def test_a_gpu_that_grappler_can_not_read_is_told(monkeypatch):
    """Of two GPUs TensorFlow leaves out one of less than eight multiprocessors (a GTX 1050 Ti of 6:
    https://github.com/tensorflow/tensorflow/issues/43104); the other keeps number 0."""
    one = [("/device:GPU:0", "GPU", {"memory_size": 10**10})]
    assert [device.name for device in _gpus(monkeypatch, one, 1)] == ["/device:GPU:0"]
    with pytest.raises(
        ClusterError,
        match="TensorFlow lists 2, but Grappler could read the figures of 1; describe them",
    ):
        _gpus(monkeypatch, one, 2)


def test_a_split_gpu_is_shared_evenly(monkeypatch):
    _one_gpu(monkeypatch)
    cluster = find_cluster("gpu_split:2")
    assert cluster.device_names == ("/device:CPU:0", "/device:GPU:0", "/device:GPU:1")
    assert [(d.memory_bytes, d.cores) for d in cluster.devices[1:]] == [(4_500_000_000, 6)] * 2
    assert gpu_split_bytes(cluster) == (4_500_000_000,) * 2
    assert cluster.link_latency[1, 2] == 30e-6


def test_a_split_needs_a_gpu_and_a_number(monkeypatch):
    monkeypatch.setattr(
        "graphs.clusters.discovery.local_cluster",
        lambda: dataclasses.replace(
            find_cluster("workers:1"), devices=(find_cluster("workers:1").devices[0],)
        ),
    )
    with pytest.raises(ClusterError, match="sees no GPU on this host; wanted one to split"):
        find_cluster("gpu_split:2")
    for spec in ("gpu_split", "gpu_split:0", "gpu_split:x"):
        with pytest.raises(ClusterError, match="wanted gpu_split:N"):
            find_cluster(spec)


def test_devices_have_no_more_memory_than_is_said():
    cluster = named_clusters.named("k80x2")
    limits = ["4GiB", "/device:GPU:1=2GiB", "/device:CPU:0=9000GiB"]
    limited = with_memory(cluster, limits)
    before = cluster.devices[0].memory_bytes
    assert [each.memory_bytes for each in limited.devices] == [before, 4 << 30, 2 << 30]
    assert with_memory(cluster, []) is cluster


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("/device:GPU:9=1GiB", "has no device '/device:GPU:9'"),
        ("4 apples", "wanted a positive size"),
    ],
)
def test_a_limit_that_says_nothing_is_named(limit, said):
    with pytest.raises(UsageError, match=f"reading --device_memory={limit}: .*{said}"):
        with_memory(named_clusters.named("k80x2"), [limit])
