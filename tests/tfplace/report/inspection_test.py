"""What is in a training step of a few ops, counted by hand."""

import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from graphs.loading import load
from graphs.loading.keras_file import export_keras
from graphs.loading.load_options import LoadOptions
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.report.inspection import (
    fit_of,
    inspect,
    inspect_model,
    largest_batch,
    planned_fit,
    print_inspection,
)
from tfplace.units_text import bytes_text


def test_everything_is_counted(weight):
    # w's update, its read and its gradient lie together, as do loss and its gradient's ops.
    inspection = inspect(weight)
    types = {row.op_type: (row.num_ops, row.output_bytes) for row in inspection.op_types}
    assert types == {
        "Placeholder": (1, 48), "VarHandleOp": (1, 8), "ReadVariableOp": (1, 24),
        "Const": (6, 8 + 4 + 8 + 8 + 4), "MatMul": (2, 32 + 24), "Sum": (1, 4), "Fill": (1, 4),
        "Reshape": (1, 4), "Tile": (1, 32), "Mul": (1, 24), "AssignSubVariableOp": (1, 0),
        "NoOp": (1, 0),
    }  # fmt: skip
    fastest = weight.problem.op_seconds.min(axis=1)
    seconds = [row.seconds for row in inspection.op_types]
    assert seconds == sorted(seconds, reverse=True) and sum(seconds) == pytest.approx(sum(fastest))
    assert [row.op_type for row in inspection.op_types][-8:] == [
        "Const", "Fill", "NoOp", "Placeholder", "ReadVariableOp", "Reshape", "Tile", "VarHandleOp",
    ]  # fmt: skip
    assert inspection.fits.fits and 0 < inspection.fits.peak_bytes < inspection.fits.usable_bytes
    rest = {
        key: value for key, value in vars(inspection).items() if key not in ("op_types", "fits")
    }
    assert rest == {
        "path": weight.source.path,
        "kind": "graph_def",
        "mode": "train",
        "step_origin": "the op train_op, and loss",
        "guessed": (),
        "signatures": [],
        "num_ops": 18,
        "num_tensors": 17,
        "num_edges": 18,
        "num_functions": 0,
        "num_colocation_groups": 3,
        "largest_colocation_group": 8,
        "devices_asked": {"": 16, "/device:GPU:1": 2},
        "trainable_bytes": 3 * 2 * 4,
        "variable_bytes": 24,
        "constant_bytes": 32,
        "flops": weight.costs.flops,
        "units": {},
        "opened": {},
        "unknown_shapes": 0,
        "unpriced_ops": {},
        "without_gpu_kernel": {},
        "cluster": "k80x2",
        "split": None,
        "not_split": "",
        "planned": None,
        "largest_batch": None,
        "largest_planned": None,
    }


def test_what_lacks_memory_fits_no_device(weight):
    scarce = np.full(3, 100, np.int64)
    problem = dataclasses.replace(weight.problem, device_memory_bytes=scarce)
    scarce = dataclasses.replace(weight, problem=problem)
    fit = fit_of(scarce)
    assert not fit.fits and fit.peak_bytes > fit.usable_bytes == 90
    assert planned_fit(scarce, ProblemOptions("weight.pb", cluster="k80x2")) is None


@pytest.mark.parametrize("cluster", ["k80x2", "workers:1"])
def test_a_larger_batch_fits_where_ops_run_again(tmp_path, cluster):
    """A step keeps twelve tensors [batch, 1000] of 4 KB a row for gradients, and 4 MB besides."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 500], "x")
        w = tf.compat.v1.get_variable("w", [500, 1000], use_resource=True)
        hidden = tf.matmul(x, w)
        for _ in range(12):
            hidden = tf.tanh(hidden)
        tf.identity(tf.gradients(tf.reduce_sum(hidden), w)[0], "gradient")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    options = ProblemOptions(
        str(path),
        LoadOptions(fetch=("gradient",), mode="inference"),
        cluster=cluster,
        device_memory=["10MB"],
        memory_reserve=0.0,
    )
    found = inspect_model(options, with_largest_batch=True)
    batch, fit = found.largest_planned
    assert not (fit.variables_on_host and cluster == "workers:1")
    assert fit.fits and fit.runs_again > 0 and fit.more_time > 0.0
    assert fit.peak_bytes <= fit.usable_bytes == 10_000_000
    assert batch > 1.5 * found.largest_batch > 0
    larger = LoadOptions(fetch=("gradient",), mode="inference", batch_size=batch)
    found = inspect_model(dataclasses.replace(options, load=larger))
    assert not found.fits.fits and found.planned == fit
    written = io.StringIO()
    print_inspection(found, Console(file=written, width=200))
    assert f"yes, with a memory plan, peak {bytes_text(fit.peak_bytes)} of" in written.getvalue()
    assert f"{fit.runs_again} ops run again" in written.getvalue()


def test_variables_go_to_the_host_where_a_gpu_has_no_room_for_them(tmp_path):
    """4 MB of weights with two momenta, and activations of 40 KB."""
    with tf.Graph().as_default() as graph:
        x = tf.constant(np.ones((10, 1000), np.float32))
        w = tf.compat.v1.get_variable("w", [1000, 1000], use_resource=True)
        loss = tf.reduce_sum(tf.tanh(tf.matmul(x, w)), name="loss")
        tf.compat.v1.train.AdamOptimizer().minimize(loss, name="train_op")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    options = ProblemOptions(
        str(path), cluster="k80x2", device_memory=["/device:GPU:0=11MB", "/device:GPU:1=11MB"]
    )
    found = inspect_model(options)
    assert not found.fits.fits
    assert found.planned.variables_on_host
    assert found.planned.peak_bytes < 11_000_000
    written = io.StringIO()
    print_inspection(found, Console(file=written, width=300))
    assert "variables and what updates them lie on the host" in written.getvalue()


def test_a_keras_file_is_exported_once_for_all_sizes_of_a_batch(tmp_path, monkeypatch):
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(1000, "tanh"), layers.Dense(1)])
    path = str(tmp_path / "model.keras")
    model.save(path)
    exported = []
    monkeypatch.setattr(
        load, "export_keras", lambda file: exported.append(file.path) or export_keras(file)
    )
    options = ProblemOptions(path, cluster="k80x2", device_memory=["2MB"], memory_plan="none")
    found = inspect_model(options, with_largest_batch=True)
    assert (found.path, found.kind) == (path, "keras") and 100 < found.largest_batch < 500
    assert exported == [path]
    for batch, said in ((found.largest_batch, "to a hundredth"), (1 << 21, "more were not tried")):
        written = io.StringIO()
        told = dataclasses.replace(found, largest_batch=batch)
        print_inspection(told, Console(file=written, width=200))
        assert f"{batch:,} examples on one device, {said}" in written.getvalue()


@pytest.mark.parametrize(("megabytes", "is_open"), [(1, True), (4, True), (4, False)])
def test_the_largest_batch_is_the_last_that_fits(tmp_path, megabytes, is_open):
    """A step holds two tensors [batch, 1000] of 4 KB a row, and 1 MB of weights."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None if is_open else 16, 500], "x")
        w = tf.compat.v1.get_variable("w", [500, 1000], use_resource=True)
        tf.reduce_sum(tf.tanh(tf.matmul(x, w)), name="loss")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    usable = 4_000_000 + megabytes * 1_000_000
    options = ProblemOptions(
        str(path),
        LoadOptions(fetch=("loss",), mode="inference"),
        cluster="k80x2",
        device_memory=[str(usable)],
        memory_reserve=0.0,
    )
    found = largest_batch(options)
    if not is_open:
        assert found == 0
        return

    def fits(batch):
        load = dataclasses.replace(options.load, batch_size=batch)
        return fit_of(prepare(dataclasses.replace(options, load=load), trace=False)).fits

    assert fits(found) and not fits(found + max(found // 50, 2))
