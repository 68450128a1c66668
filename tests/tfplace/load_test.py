"""tfplace.load: of a model whose devices are not here, and of one for worker processes."""

import dataclasses
import subprocess
import sys

import pytest
import tensorflow as tf

import tfplace
from graphs.clusters.discovery import find_cluster
from graphs.loading.sniff import sniff
from tests.rewrite.models import write_tf2
from tfplace.api.placed_again import place_like
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.preparing.written_devices import loading_needs, written_devices

WORKERS = find_cluster("workers:2")
FIRST, SECOND = WORKERS.device_names


def with_a_variable_on(device, path):
    module = tf.Module()
    module.weight = tf.Variable(1.0)
    tf.saved_model.save(module, str(path))
    model = sniff(path).proto
    for node in model.meta_graphs[0].object_graph_def.nodes:
        if node.HasField("variable"):
            node.variable.device = device
    (path / "saved_model.pb").write_bytes(model.SerializeToString())
    return str(path)


@pytest.mark.parametrize(
    ("device", "keywords", "told"),
    [
        ("/job:worker/replica:0/task:1/device:CPU:0", {}, r"task:1.*give start_workers=True"),
        ("/job:ps/task:0/device:CPU:0", {"start_workers": True}, r"job:ps.*not the CPU of a work"),
    ],
)
def test_a_device_that_is_not_here_is_named_with_what_to_do(device, keywords, told, tmp_path):
    path = with_a_variable_on(device, tmp_path)
    with pytest.raises(tfplace.TfplaceError, match=told):
        tfplace.load(path, **keywords)


def test_a_model_for_workers_is_loaded_in_one_line(tiny_rnnlm, tmp_path):
    """In a process of its own, as TensorFlow has one cluster per process."""
    regression = write_tf2(tmp_path / "regression")
    for model, name, plan in (
        (regression, "placed", {"w": FIRST, "w_1": SECOND}),
        (regression, "single", {"w": SECOND}),
        (tiny_rnnlm, "rnnlm", {"tokens": FIRST, "lstm_1/kernel": SECOND}),
    ):
        options = ProblemOptions(model, cluster="workers:2")
        place_like(OptimizeOptions(options, output_dir=str(tmp_path / name)), plan)
    code = """
import tensorflow as tf, tfplace
before = tf.Variable(3.0)
ones = tf.ones((4, 2))
given = tf.saved_model.load("regression").signatures["train_step"]
placed = tfplace.load("placed", start_workers=True)
assert {v.device[:28] for v in (placed.first, placed.second)} == {
    "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"}
rnnlm = tfplace.load("rnnlm", start_workers=True)
shape = rnnlm.signatures["train_step"].structured_input_signature[1]
feeds = {name: tf.zeros(spec.shape, spec.dtype) for name, spec in shape.items()}
losses = [float(rnnlm.signatures["train_step"](**feeds)["loss"]) for _ in range(2)]
assert losses[1] < losses[0], losses
for _ in range(2):
    wanted, found = given(x=ones)["loss"], placed.signatures["train_step"](x=ones)["loss"]
    assert abs(float(wanted) - float(found)) < 1e-6
single = tfplace.load("single")
assert float(single.signatures["train_step"](x=ones)["loss"]) > float(wanted)
assert single.first.device == before.device and float(before + 1.0) == 4.0
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Failed to remove" not in done.stderr  # what TensorFlow says if they end too early


def test_one_worker_that_is_kept_loses_its_name():
    both, one = {"a": FIRST, "b": SECOND}, {"a": SECOND, "b": SECOND}
    assert written_devices(one, WORKERS) == {"a": "/device:CPU:0", "b": "/device:CPU:0"}
    assert written_devices(both, WORKERS) == both
    addressed = dataclasses.replace(
        WORKERS, devices=[dataclasses.replace(d, address="h:1") for d in WORKERS.devices]
    )
    assert written_devices(one, addressed) == one
    assert [loading_needs(WORKERS, used) for used in ([SECOND], [FIRST, SECOND])] == ["", "workers"]
    assert loading_needs(addressed, [SECOND]) == "connection"
    assert loading_needs(find_cluster("k80x2"), ["/device:GPU:0", "/device:GPU:1"]) == ""
