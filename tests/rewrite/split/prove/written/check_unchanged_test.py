"""What is not the run of a model with a split step is the model as it came: mistakes are found."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from graphs.loading.load import load
from rewrite.pass_base import RewriteError
from rewrite.split.prove.written.check_unchanged import prove_others
from tests.rewrite.split.run_step import split_model
from tests.rewrite.split.write.emission_test import (
    BUILDS,
    TRAINED,
    graph_def,
    meta_graph,
    model_with,
    saved_model_v1,
    saved_model_v2,
    with_another_rate,
    with_the_same_call,
)


@pytest.mark.parametrize("kind", [graph_def, meta_graph, saved_model_v1, saved_model_v2])
def test_all_kinds_of_models_hold(kind, tmp_path):
    path, options = kind(tmp_path)
    split = split_model(load(path, options), 2)
    prove_others(split.given, split.source)


@pytest.mark.parametrize("build", BUILDS)
def test_other_signatures_hold(build, tmp_path):
    split = made(build, tmp_path)
    prove_others(split.given, split.source)


def made(build, folder):
    path = str(folder / "given")
    model_with(build, path)
    return split_model(load(path, TRAINED), 2)


@pytest.fixture(scope="module")
def rated(tmp_path_factory):
    return made(with_another_rate, tmp_path_factory.mktemp("rated"))


@pytest.fixture(scope="module")
def called(tmp_path_factory):
    return made(with_the_same_call, tmp_path_factory.mktemp("called"))


@pytest.fixture(scope="module")
def functional(tmp_path_factory):
    path, options = saved_model_v2(tmp_path_factory.mktemp("functional"))
    return split_model(load(path, options), 2)


def refused(split, change):
    """Whether the model is refused after a change of its MetaGraphDef."""
    meta_graph = copy.deepcopy(split.source.meta_graph_def)
    change(meta_graph)
    with pytest.raises(RewriteError, match="comparing"):
        prove_others(split.given, dataclasses.replace(split.source, meta_graph_def=meta_graph))


def the_split_rate(meta_graph):
    info = meta_graph.signature_def["other"].inputs["rate"]
    assert info.name.startswith("whole/")
    info.name = info.name.removeprefix("whole/")


def the_split_loss(meta_graph):
    for name in ("other", "train_step_whole"):
        info = meta_graph.signature_def[name].outputs["loss"]
        assert info.name.startswith("whole/")
    info.name = info.name.removeprefix("whole/")


def gone(meta_graph):
    del meta_graph.signature_def["other"]


def one_more(meta_graph):
    meta_graph.signature_def["more"].CopyFrom(meta_graph.signature_def["other"])


def another_output(meta_graph):
    outputs = meta_graph.signature_def["other"].outputs
    outputs["other"].CopyFrom(outputs.pop("loss"))


def whole_op(meta_graph, op):
    return next(n for n in meta_graph.graph_def.node if n.op == op and "shard" not in n.name)


def another_attribute(meta_graph):
    whole_op(meta_graph, "MatMul").attr["transpose_b"].b = True


def waiting_for_less(meta_graph):
    node = next(n for n in meta_graph.graph_def.node if n.name.startswith("whole/")
                and any(each.startswith("^") for each in n.input))  # fmt: skip
    node.input.pop()


def reading_the_split_op(meta_graph):
    node = whole_op(meta_graph, "Tanh")
    node.input[0] += "/shard_0"
    assert any(n.name == node.input[0] for n in meta_graph.graph_def.node)


def another_variable(meta_graph):
    node = next(n for n in meta_graph.graph_def.node if n.op == "VarHandleOp")
    node.attr["shared_name"].s = b"another"


def the_runs_input(meta_graph):
    meta_graph.signature_def["train_step"].inputs["x"].name = "y:0"


@pytest.mark.parametrize(
    "change",
    [the_split_rate, the_split_loss, gone, one_more, another_output, another_attribute,
     waiting_for_less, reading_the_split_op, another_variable, the_runs_input],
)  # fmt: skip
def test_what_another_signature_reads_or_gives_wrongly_is_refused(rated, change):
    refused(rated, change)


def the_split_call(meta_graph):
    signatures = meta_graph.signature_def
    signatures["other"].outputs["loss"].CopyFrom(signatures["train_step"].outputs["loss"])


def the_split_function(meta_graph):
    call = meta_graph.signature_def["train_step"].outputs["loss"].name.removesuffix(":0")
    split = next(n.attr["f"].func.name for n in meta_graph.graph_def.node if n.name == call)
    for node in meta_graph.graph_def.node:
        if "_whole_" in node.attr["f"].func.name:
            node.attr["f"].func.name = split


def another_function(meta_graph):
    for function in meta_graph.graph_def.library.function:
        if "_whole_" in function.signature.name:
            next(n for n in function.node_def if n.op == "Tanh").op = "Sin"


@pytest.mark.parametrize("change", [the_split_call, the_split_function, another_function])
def test_calls_of_another_function_are_refused(called, change):
    refused(called, change)


def no_whole_object(meta_graph):
    objects = meta_graph.object_graph_def
    maps = [n for n in objects.nodes if n.user_object.identifier == "signature_map"]
    maps[0].children.pop()


def objects_that_call_the_split_step(meta_graph):
    objects = meta_graph.object_graph_def
    whole = objects.nodes[-1].bare_concrete_function
    [own] = {n.bare_concrete_function.concrete_function_name for n in objects.nodes
             if n.HasField("bare_concrete_function")} - {whole.concrete_function_name}  # fmt: skip
    whole.concrete_function_name = own


@pytest.mark.parametrize("change", [no_whole_object, objects_that_call_the_split_step])
def test_objects_with_another_function_are_refused(functional, change):
    refused(functional, change)


def test_the_unsplit_step_of_a_graph_that_fetches_the_split_one_is_refused(tmp_path):
    path, options = graph_def(tmp_path)
    split = split_model(load(path, options), 2)
    wrong = dataclasses.replace(split.source, whole_fetches=split.source.fetches)
    with pytest.raises(RewriteError, match="comparing the unsplit step"):
        prove_others(split.given, wrong)
