"""tfplace.load: of a model whose devices are not here, and of one for worker processes."""

import dataclasses
import subprocess
import sys

import pytest
import tensorflow as tf

import tfplace
from graphs.clusters.discovery import find_cluster
from graphs.loading.sniff import sniff
from tests.rewrite.models import write_routed, write_tf2
from tfplace.api.placings import place_like
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


def test_a_model_for_workers_is_loaded_in_one_line(tmp_path):
    """In a process of its own, as TensorFlow has one cluster per process."""
    regression = write_tf2(tmp_path / "regression")
    for model, name, plan in (
        (regression, "placed", {"w": FIRST, "w_1": SECOND}),
        (regression, "single", {"w": SECOND}),
        (write_routed(tmp_path / "given"), "routed", {"hash_table": SECOND, "Variable_1": FIRST}),
    ):
        options = ProblemOptions(model, cluster="workers:2")
        place_like(OptimizeOptions(options, output_dir=str(tmp_path / name)), plan)
    code = """
import tensorflow as tf, tfplace
before = tf.Variable(3.0)
try:
    tfplace.load("placed", start_workers=True)
except tfplace.TfplaceError as error:
    assert "has 1 variables, such as 'Variable:0'; wanted none yet" in str(error), error
    del before
placed = tfplace.load("placed", start_workers=True)
ones = tf.ones((4, 2))
original = tf.saved_model.load("regression")
given = original.signatures["train_step"]
assert {v.device[:28] for v in (placed.first, placed.second)} == {
    "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"}
words = tf.constant(["green", "black"])  # of a table whose file a worker has to find
for model in (tf.saved_model.load("given"), tfplace.load("routed", start_workers=True)):
    outputs = model.signatures["serving_default"](x=ones[:2], words=words)
    assert outputs["ids"].numpy().tolist() == [1, -1] and int(outputs["count"]) == 1
for _ in range(2):
    wanted, found = given(x=ones)["loss"], placed.signatures["train_step"](x=ones)["loss"]
    assert abs(float(wanted) - float(found)) < 1e-6
single = tfplace.load("single")
assert float(single.signatures["train_step"](x=ones)["loss"]) > float(wanted)
assert single.first.device == original.first.device
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
    # The whole variables of weights in pieces lie on any CPU.
    beside = one | {"whole": "/device:CPU:0"}
    assert {*written_devices(beside, WORKERS).values()} == {"/device:CPU:0"}
    addressed = dataclasses.replace(
        WORKERS, devices=[dataclasses.replace(d, address="h:1") for d in WORKERS.devices]
    )
    assert written_devices(one, addressed) == one
    assert [loading_needs(WORKERS, used) for used in ([SECOND], [FIRST, SECOND])] == ["", "workers"]
    assert loading_needs(addressed, [SECOND]) == "connection"
    assert loading_needs(find_cluster("k80x2"), ["/device:GPU:0", "/device:GPU:1"]) == ""


def test_what_is_no_model_is_an_error_of_ours(tmp_path):
    with pytest.raises(tfplace.TfplaceError, match=r"folder: .*wanted the folder of a SavedModel"):
        tfplace.load(str(tmp_path / "folder"))
