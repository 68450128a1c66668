"""tfplace check: device strings that a cluster can't honour, told op by op."""

import json

import pytest
import tensorflow as tf

from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.named_clusters import named
from tfplace.cli import main

GPU0, GPU1, GPU7 = "/device:GPU:0", "/device:GPU:1", "/device:GPU:7"
v1 = tf.compat.v1


@pytest.fixture(scope="module")
def misplaced_model(tmp_path_factory):
    """Training of one weight: a device that is nowhere, no kernel, two devices for one variable."""
    with tf.Graph().as_default() as graph:
        with tf.device(GPU0):
            x = v1.placeholder(tf.float32, [4, 3], name="x")
            w = v1.get_variable("w", [3, 2], use_resource=True)
            text = tf.strings.as_string(x, name="text")
        with tf.device("/gpu:7"):
            y = tf.matmul(x, w, name="y")
        with tf.device("/job:localhost/replica:0/task:0/device:GPU:1"):
            update = w.assign_sub(tf.ones([3, 2]), read_value=False)
        with tf.control_dependencies([update, y, text]):
            tf.no_op(name="train_op")
    path = tmp_path_factory.mktemp("check") / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path)


def checked(words, capsys):
    """(status, the printed JSON, the lines on stderr)."""
    status = main(["check", *words, "--format=json"])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    return status, json.loads(captured.out), captured.err.splitlines()


def test_each_op_that_can_not_be_where_it_asks_to_is_named(misplaced_model, capsys):
    status, check, errors = checked([misplaced_model, "--cluster=k80x2"], capsys)
    assert (status, check["runs"]) == (2, False)
    assert len(errors) == 1 and errors[0].startswith("tfplace: error: checking ")
    told = {row["op"]: (row["reason"], row["asked"], row["message"]) for row in check["misplaced"]}
    assert told == {
        "text": ("no_kernel", GPU0, "no kernel for its dtypes there; it has one on /device:CPU:0"),
        "y": (
            "unknown_device",
            GPU7,
            "the cluster has no such device; did you mean '/device:GPU:1'?",
        ),
        "AssignSubVariableOp": (
            "colocation",
            "/job:localhost/replica:0/task:0/device:GPU:1",
            "shares a device with 2 ops (group of w): w asks for /device:GPU:0",
        ),
    }
    assert all(0 <= m["peak_bytes"] <= m["usable_bytes"] for m in check["memory"].values())


def test_the_text_fits_80_columns(misplaced_model, capsys):
    assert main(["check", misplaced_model, "--cluster=k80x2"]) == 2
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "not there y (MatMul) on /device:GPU:7" in printed
    assert "verdict   does not run on k80x2 as it is: 3 of " in printed


def test_a_model_without_devices_runs_anywhere_but_needs_the_memory(tiny_rnnlm, tmp_path, capsys):
    status, check, errors = checked([tiny_rnnlm, "--cluster=k80x2"], capsys)
    assert (status, check["runs"], errors) == (0, True, [])
    assert check["devices_asked"] == {"": check["num_ops"]} and check["misplaced"] == []
    small = cluster_to_json(named("k80x2"))
    for device in small["devices"]:
        device["memory"] = 1000
    path = tmp_path / "small.json"
    path.write_text(json.dumps(small))
    status, check, errors = checked([tiny_rnnlm, f"--cluster={path}"], capsys)
    assert (status, check["runs"], check["misplaced"]) == (2, False, [])
    assert f"{GPU0} is too small" in errors[0]


def test_devices_in_functions_count_whether_the_run_opens_them_or_not(tmp_path, capsys):
    @tf.function
    def doubled(x):
        with tf.device("/device:GPU:3"):
            return tf.multiply(x, 2.0, name="double")

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="x")])
    def serve(x):
        return {"y": tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, doubled(a)), (0, x))[1]}

    module = tf.Module()
    module.serve = serve
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=serve)
    status, check, _ = checked([str(tmp_path / "model"), "--cluster=k80x2"], capsys)
    assert status == 2
    ops = [row["op"].partition("/")[2] for row in check["misplaced"]]
    assert sorted(ops) == ["double", "double/y"]
    assert {row["reason"] for row in check["misplaced"]} == {"unknown_device"}
