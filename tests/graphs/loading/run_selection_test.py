"""Every rule by which a run is found, most explicit first."""

import dataclasses

import pytest
import tensorflow as tf

from graphs.errors import FetchError, ModelError
from graphs.graph_view import GraphView
from graphs.loading.load_options import LoadOptions
from graphs.loading.run_selection import INFERENCE_ONLY, RunSources, SelectedRun, select_run, sinks
from graphs.loading.variable_updates import OptimizerUpdates
from graphs.source_model import Signature, TensorSpec
from tests.graphs.loading import model_files

v1 = tf.compat.v1


def _sources(graph_def, signatures=(), train_ops=(), could_train=False):
    view = GraphView(graph_def)
    named = {
        name: Signature({}, {"out": TensorSpec(tensor, "float32", ())})
        for name, tensor in dict(signatures).items()
    }
    return RunSources(view, OptimizerUpdates(view), named, train_ops, could_train)


def _trained(optimizer=None):
    optimizer = optimizer or v1.train.GradientDescentOptimizer(0.1)
    return model_files.training_graph(optimizer)[0].as_graph_def()


def _forward():
    return model_files.training_graph()[0].as_graph_def()


BOTH = {"train_step": "loss:0", "serving_default": "y:0"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LoadOptions(fetch=("y:0",)), SelectedRun(("y:0",), "inference", "fetches y:0")),
        (
            LoadOptions(fetch=("loss:0", "GradientDescent")),
            SelectedRun(("loss:0", "GradientDescent"), "train", "fetches loss:0, GradientDescent"),
        ),
        (
            LoadOptions(fetch=("y:0",), mode="train"),
            SelectedRun(("y:0",), "train", "fetches y:0", step_wanted=True),
        ),
        (
            LoadOptions(signature="serving_default"),
            SelectedRun(("y:0",), "inference", "signature serving_default", "serving_default"),
        ),
        (
            LoadOptions(signature="serving_default", mode="train"),
            SelectedRun(("y:0",), "train", "signature serving_default", "serving_default", True),
        ),
        (LoadOptions(), SelectedRun(("loss:0",), "train", "signature train_step", "train_step")),
        (
            LoadOptions(mode="inference"),
            SelectedRun(
                ("y:0",),
                "inference",
                "signature serving_default",
                "serving_default",
                guessed=("signature serving_default was taken of 2: serving_default, train_step",),
            ),
        ),
    ],
)
def test_what_the_user_says_comes_first(options, expected):
    assert select_run(_sources(_trained(), BOTH, ["GradientDescent"]), options) == expected


def test_the_collection_comes_before_names():
    graph_def = _trained()
    graph_def.node.add(name="other/train_op", op="NoOp")
    run = select_run(_sources(graph_def, train_ops=["GradientDescent"]), LoadOptions())
    assert run == SelectedRun(
        ("loss:0", "GradientDescent"), "train", "the train_op collection, and loss"
    )


def test_an_op_called_train_op():
    graph_def = _trained()
    for name in ("tower/deep/train_op", "tower/train_op", "train_op_not"):
        graph_def.node.add(name=name, op="NoOp")
    run = select_run(_sources(graph_def), LoadOptions())
    assert run.fetches == ("loss:0", "tower/train_op")
    assert run.guessed == (
        "train op tower/train_op was taken of 2: tower/deep/train_op, tower/train_op",
    )


@pytest.mark.parametrize(
    "optimizer",
    [v1.train.MomentumOptimizer(0.1, 0.9), v1.train.AdamOptimizer(), v1.train.FtrlOptimizer(0.1)],
)
def test_the_optimizers_update_group_up_to_the_global_step(optimizer):
    run = select_run(_sources(_trained(optimizer)), LoadOptions())
    assert run.fetches == ("loss:0", optimizer.get_name())
    assert run.mode == "train"


def test_updates_without_a_group_are_all_fetched():
    graph = tf.Graph()
    with graph.as_default():
        variables = [v1.get_variable(name, [2], use_resource=True) for name in "ab"]
        for variable in variables:
            variable.assign_sub([1.0, 1.0], name=f"{variable.op.name}_sub", read_value=False)
    run = select_run(_sources(graph.as_graph_def()), LoadOptions())
    assert run.fetches == ("a_sub", "b_sub")


def test_updates_in_a_called_function_and_in_a_branch_of_it():
    w = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x):
        if tf.reduce_sum(x) > 0:
            w.assign_sub(x)
        return tf.reduce_sum(w * x)

    @tf.function
    def outer(x):
        return step(x) + 1.0

    concrete = outer.get_concrete_function(tf.TensorSpec([2]))
    sources = _sources(concrete.graph.as_graph_def())
    (call,) = [node.name for node in concrete.graph.as_graph_def().node if "Call" in node.op]
    assert list(sources.updates.variables_of) == [call]
    # The function's output waits for the call's side effects.
    assert select_run(sources, LoadOptions()).fetches == ("Identity",)


def test_moving_averages_and_counters_are_no_training():
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("v", [], use_resource=True)
        v.assign_sub(1.0, name="bn/AssignMovingAvg", read_value=False)
        v.assign_add(1.0, name="total", read_value=False)
    assert _sources(graph.as_graph_def()).updates.variables_of == {}


def test_a_step_is_made_of_a_signature_only_where_training_is_asked_for():
    sources = _sources(_forward(), {"f": "y:0"}, could_train=True)
    assert select_run(sources, LoadOptions(mode="train")) == SelectedRun(
        ("y:0",), "train", "signature f", "f", step_wanted=True
    )
    found = SelectedRun(("y:0",), "inference", "signature f", "f", guessed=(INFERENCE_ONLY,))
    assert select_run(sources, LoadOptions()) == found
    asked = select_run(sources, LoadOptions(mode="inference"))
    assert asked == dataclasses.replace(found, guessed=())


def test_the_signature_that_keras_writes_twice_is_no_choice():
    both = {"serve": "y:0", "serving_default": "y:0"}
    assert select_run(_sources(_forward(), both), LoadOptions()).guessed == ()
    (choice,) = select_run(_sources(_forward(), {**both, "f": "y:0"}), LoadOptions()).guessed
    assert choice == "signature serving_default was taken of 2: f, serving_default"


def test_sinks_leave_out_saving_and_initialising():
    assert sinks(GraphView(_forward())) == ("loss:0",)
    run = select_run(_sources(_forward()), LoadOptions())
    assert (run.fetches, run.mode, run.step_wanted) == (("loss:0",), "inference", False)
    assert run.guessed == (
        "no training op was found; a run fetches the ops whose results nobody uses, loss:0",
    )
    assert select_run(_sources(_forward()), LoadOptions(mode="train")).step_wanted


def test_nothing_to_run_and_nothing_of_that_name():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="init", op="NoOp")
    with pytest.raises(ModelError, match="name what to run with --fetch"):
        select_run(_sources(graph_def), LoadOptions())
    with pytest.raises(FetchError, match="nearest: 'loss'"):
        select_run(_sources(_forward()), LoadOptions(fetch=("losss:0",)))
    with pytest.raises(FetchError, match=r"'y' \(MatMul\) has 1 output$"):
        select_run(_sources(_forward()), LoadOptions(fetch=("y:1",)))
    with pytest.raises(FetchError, match="name it without an index"):
        select_run(_sources(_trained()), LoadOptions(fetch=("GradientDescent/update:0",)))
    with pytest.raises(FetchError, match="no op 'gone'"):
        select_run(_sources(_forward(), {"f": "gone:0"}), LoadOptions(signature="f"))
    with pytest.raises(FetchError, match="the model has no signatures"):
        select_run(_sources(_forward()), LoadOptions(signature="a"))
