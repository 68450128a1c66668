"""The Python API: its examples run as printed, and a step of this process runs placed."""

import doctest
import json
import subprocess
import sys
import typing

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfplace
from graphs.clusters.named_clusters import named
from graphs.errors import TfplaceError
from tfplace.api import commands, flags, placed_step
from tfplace.api.flags import flag_values
from tfplace.commands.command_table import COMMANDS

QUICK = {"cluster": "k80x2", "max_trials": 5, "budget_seconds": 2.0, "algorithm": "local_search"}


def test_the_examples_run_as_printed(tiny_rnnlm, tmp_path):
    globs = {"tiny_model": tiny_rnnlm, "output_dir": str(tmp_path / "out")}
    for module in (commands, placed_step):
        found = doctest.testmod(module, extraglobs=globs)
        assert found.attempted and not found.failed


def test_a_keras_model_trains_placed_as_it_would_have_trained():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    x, y = np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)
    placed = tfplace.place(model, (x, y), **QUICK)
    before = model.get_weights()
    losses = [float(placed(x, y)["loss"]) for _ in range(4)]
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    placed.sync()
    trained = model.get_weights()
    model.set_weights(before)
    for variable in model.optimizer.variables[2:]:
        variable.assign(tf.zeros_like(variable))
    model.optimizer.iterations.assign(0)
    for metric in model.metrics:
        metric.reset_state()
    expected = [float(model.train_step((x, y))["loss"]) for _ in range(4)]
    assert losses == pytest.approx(expected, rel=1e-5)
    for found, wanted in zip(trained, model.get_weights(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    assert placed.report.model["mode"] == "train"
    weights = np.linspace(0.0, 3.0, 8, dtype=np.float32)
    expected = float(model.train_step((x, y, weights))["loss"])
    assert float(placed(x, y, weights)["loss"]) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(tfplace.TfplaceError, match="in the example: y, and it can't be placed"):
        placed(x)
    with pytest.raises(tfplace.TfplaceError, match="another structure"):
        placed(x, [y, y])


def test_what_can_not_be_placed_is_told_in_a_line():
    @tf.function
    def step(x, *, scale):
        return x * scale

    with pytest.raises(tfplace.TfplaceError, match="found a int"):
        tfplace.place(3)
    with pytest.raises(tfplace.TfplaceError, match="output_dir is set by the step"):
        tfplace.place(step, output_dir="x")
    with pytest.raises(tfplace.TfplaceError, match="not compiled"):
        tfplace.place(keras.Sequential([keras.layers.Dense(1)]), (np.ones((1, 1)), 1))
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = tfplace.optimise


def test_keywords_are_the_flags_of_the_command():
    given = {"cluster": "k80x4", "pin": ["a=/device:CPU:0", "b=/device:GPU:0"],
             "keep_devices": True, "max_trials": None, "seed": 3}  # fmt: skip
    with flag_values("optimize", ["m.pb"], given) as values:
        assert (values.cluster, values.pin, values.keep_devices) == (
            "k80x4", ["a=/device:CPU:0", "b=/device:GPU:0"], True)  # fmt: skip
        assert (values.max_trials, values.seed, values.budget_seconds) == (None, 3, 60.0)
    with (
        pytest.raises(tfplace.TfplaceError, match="did you mean '--max_trials'"),
        flag_values("optimize", ["m.pb"], {"max_trial": 3}),
    ):
        pass


@pytest.mark.parametrize(
    ("keywords", "command", "left_out"),
    [
        (flags.InspectFlags, "inspect", set()),
        (flags.SimulateFlags, "simulate", {"placement", "repeat"}),
        (flags.OptimizeFlags, "optimize", set()),
    ],
)
def test_every_flag_is_a_keyword_that_editors_know(keywords, command, left_out):
    """A placement is an argument; printing and speed are the command line's."""
    wanted = {flag.name for flag in COMMANDS[command].flags} - {"format", "verbosity"}
    assert set(typing.get_type_hints(keywords)) == wanted - left_out


def test_a_cluster_of_ones_own_is_taken_by_value(tiny_rnnlm):
    import dataclasses

    cluster = dataclasses.replace(named("k80x2"), name="my box")
    assert tfplace.simulate(tiny_rnnlm, cluster=cluster) == tfplace.simulate(
        tiny_rnnlm, cluster="k80x2"
    )


def test_simulate_writes_the_files_that_it_is_asked_for(tiny_rnnlm, tmp_path):
    problem, timeline = tmp_path / "problem.npz", tmp_path / "timeline.json"
    tfplace.simulate(
        tiny_rnnlm,
        {"loss": "/device:CPU:0"},
        cluster="k80x2",
        dump_problem=str(problem),
        timeline=str(timeline),
    )
    dump = np.load(problem)
    device = dict(zip(dump["op_names"].tolist(), dump["placement"].tolist(), strict=True))
    assert (device["loss"], device["tokens"]) == (0, 1)
    assert json.loads(timeline.read_text())["traceEvents"]


def test_importing_tfplace_imports_nothing_heavy():
    code = (
        "import sys, tfplace; tfplace.Cluster, dir(tfplace);"
        "heavy = {'tensorflow', 'numba', 'scipy', 'keras'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_errors_of_what_is_given_as_values_name_no_file_of_ours(tiny_rnnlm):
    with pytest.raises(TfplaceError, match="found a str; wanted a model as"):
        tfplace.make_whole("model_placed")
    with pytest.raises(TfplaceError, match=r"reading the placement placement=\{\.\.\.\}: "):
        tfplace.simulate(tiny_rnnlm, {"loss": "/device:GPU:9"}, cluster="k80x2")
    with pytest.raises(TfplaceError, match=r"reading inputs from feed=\{\.\.\.\}: the run has no"):
        tfplace.inspect(tiny_rnnlm, feed={"nope": np.zeros(3)})
