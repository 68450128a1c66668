"""GPUs: what the measuring child asks of TensorFlow, and real runs where there is one."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from graphs.cluster import Cluster, Device
from graphs.clusters.discovery import find_cluster
from graphs.problem import Infeasible
from tests.tfplace.measurement.measure_graphs import towers, towers_run
from tfplace.measurement import measuring_child, presence
from tfplace.measurement.allocator import DevicePeak, Peaks
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.run_measurement import Timings, measure_peaks, measure_variants
from tfplace.measurement.step_runner import _session_config
from tfplace.measurement.training_run import PrepareRequest, RuntimeConfig, TrainingRun, exactly

v1 = tf.compat.v1
MIB = 2**20
HALVES = ("/device:GPU:0", "/device:GPU:1")
NEEDS_GPU = pytest.mark.skipif(
    not tf.config.list_physical_devices("GPU"), reason="TensorFlow sees no GPU on this machine"
)


def _split_cluster(memory_bytes: int) -> Cluster:
    devices = [Device("/device:CPU:0", "CPU", 1 << 30)]
    devices += [Device(name, "GPU", memory_bytes) for name in HALVES]
    size = len(devices)
    return Cluster("gpu_split:2", "duplex", devices, np.zeros((size, size)), np.ones((size, size)))


def test_the_child_splits_the_first_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind} 0", f"{kind} 1"])
    monkeypatch.setattr(
        tf.config, "set_logical_device_configuration", lambda gpu, parts: asked.append((gpu, parts))
    )
    measuring_child._split_first_gpu(())
    assert asked == []
    measuring_child._split_first_gpu((300 * MIB, 200 * MIB))
    parts = [tf.config.LogicalDeviceConfiguration(size) for size in (300, 200)]
    assert asked == [("GPU 0", parts)]


def test_a_session_splits_the_gpu_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = RuntimeConfig(["/device:CPU:0", *HALVES], [""] * 3)
    assert not _session_config(runtime).gpu_options.experimental.virtual_devices
    split = dataclasses.replace(runtime, gpu_memory_bytes=(300 * MIB, 200 * MIB))
    (virtual,) = _session_config(split).gpu_options.experimental.virtual_devices
    assert list(virtual.memory_limit_mb) == [300, 200]
    # Beside other GPUs TensorFlow refuses a list that is shorter than they are many.
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind} 0", f"{kind} 1"])
    entries = _session_config(split).gpu_options.experimental.virtual_devices
    assert [list(entry.memory_limit_mb) for entry in entries] == [[300, 200], []]


@pytest.mark.parametrize(("num_gpus", "is_there"), [(0, False), (1, True)])
def test_a_split_gpu_is_present_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int, is_there: bool
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * num_gpus)
    assert presence.is_present(_split_cluster(MIB)) is is_there
    physical = dataclasses.replace(_split_cluster(MIB), name="box")
    assert not presence.is_present(physical)  # two GPUs are named


def test_memory_is_asked_of_each_gpu_and_reset_after(monkeypatch: pytest.MonkeyPatch) -> None:
    resets = []
    counts = {
        "CPU:0": {"current": 1, "peak": 2},
        "GPU:0": {"current": 3, "peak": 4},
        "GPU:1": {"current": 5, "peak": 6},
    }
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", counts.__getitem__)
    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", resets.append)
    names = ["/device:CPU:0", *HALVES, "/job:worker/task:1/device:CPU:0"]
    monkeypatch.setattr(Peaks, "_begin", lambda self: None)
    peaks = {"/device:CPU:0": DevicePeak(2), HALVES[0]: DevicePeak(4), HALVES[1]: DevicePeak(6)}
    assert Peaks().of_devices(names, reset=False) == peaks
    assert resets == []
    assert Peaks().of_devices(names, reset=True) == peaks
    assert resets == ["CPU:0", "GPU:0", "GPU:1"]


def test_cpus_of_one_process_share_an_allocator() -> None:
    assert Peaks().of_devices(["/device:CPU:0", "/device:CPU:1"], reset=False) == {}


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("spec", ["local", "gpu_split:2"])
def test_a_gpu_runs_placements_and_tells_its_peak(spec: str) -> None:
    cluster = find_cluster(spec)
    variants = {
        "single": towers([HALVES[0]] * 2),
        "placed": towers([HALVES[0], cluster.device_names[-1]]),
    }
    limits = exactly(3, warmup_steps=3)
    for timings in measure_variants(variants, towers_run(), cluster, limits).values():
        assert isinstance(timings, Timings)
        assert timings.first_outputs == {"loss:0": 60.0}
    for peaks in measure_peaks(variants, towers_run(), cluster, limits).values():
        assert not isinstance(peaks, Infeasible)
        assert peaks[HALVES[0]] > 0


@pytest.mark.gpu
@NEEDS_GPU
def test_a_logical_gpus_memory_limit_is_kept() -> None:
    """A 64 MiB tensor beside another does not fit into 100 MiB, and one does."""
    with tf.Graph().as_default() as graph, tf.device(HALVES[0]):
        first, second = (v1.random_uniform([16 * MIB]) for _ in range(2))
        with tf.control_dependencies([first, second]):
            tf.reduce_sum(first, name="one")
            tf.add(tf.reduce_sum(first), tf.reduce_sum(second), name="both")
    answers = {}
    with MeasuringProcess(_split_cluster(100 * MIB)) as process:
        for fetch in ("one", "both"):
            pruned = graph.as_graph_def()
            if fetch == "one":
                for node in pruned.node:
                    if node.name == "one":
                        node.input[:] = [name for name in node.input if not name.startswith("^")]
            request = PrepareRequest(0, pruned.SerializeToString(), TrainingRun({}, [f"{fetch}:0"]))
            answers[fetch] = process.request(request, 100)
    assert not isinstance(answers["one"], Infeasible)
    assert isinstance(answers["both"], Infeasible) and answers["both"].reason == "memory"
