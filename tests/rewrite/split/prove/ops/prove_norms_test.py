"""Batch normalisation apart is proven against TensorFlow's fused ops, and a wrong one found."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.shapes import infer
from rewrite.split.batch_norm.decompose import decompose_norms
from rewrite.split.prove.ops import norm_cases as cases_module
from rewrite.split.prove.ops import prove_ops
from rewrite.split.prove.ops.child import norm_outcome
from rewrite.split.prove.ops.norm_cases import norm_cases
from rewrite.split.prove.ops.op_case import CaseOutcome
from rewrite.split.prove.ops.prove_ops import prove_norms
from tests.rewrite.split.batch_norm.decompose_test import BATCH, SHAPES, norm_graph
from tests.rewrite.split.child_here import CasesHere
from tests.rewrite.split.run_step import flat_graph


@pytest.fixture(autouse=True)
def no_children(monkeypatch):
    monkeypatch.setattr(prove_ops, "AskedChild", CasesHere)


def taken_apart(layout="NHWC", dtype="float32", factor=0.25, version="V3"):
    graph, feeds, fetches = norm_graph(layout, tf.as_dtype(dtype).as_numpy_dtype, factor, version)
    fused = flat_graph(graph, feeds, fetches)
    apart, properties = decompose_norms(fused, infer(fused), BATCH, dict.fromkeys(feeds, 0))
    assert apart is not fused
    return fused, apart, properties


@pytest.mark.parametrize("layout", SHAPES)
def test_all_layouts_and_running_statistics(layout):
    for factor in (1.0, 0.25):
        fused, apart, properties = taken_apart(layout, factor=factor)
        (case,) = norm_cases(fused, apart, properties)
        assert [old for old, _ in case.outputs] == [
            "gradient:0", "gradient:1", "gradient:2", "norm:0", "norm:1", "norm:2",
        ]  # fmt: skip
        proof = prove_norms(fused, apart, properties, 10.0)
        assert (proof.distinct_ops, proof.proven_ops, proof.differing) == (1, 1, [])


@pytest.mark.parametrize(("dtype", "version"), [("float16", "V3"), ("bfloat16", "V3"),
                                                ("float32", ""), ("float32", "V2")])  # fmt: skip
def test_types_and_versions(dtype, version):
    fused, apart, properties = taken_apart(dtype=dtype, version=version)
    proof = prove_norms(fused, apart, properties, 10.0)
    assert (proof.distinct_ops, proof.proven_ops, proof.differing) == (1, 1, [])


def test_of_large_images_fewer_are_run(monkeypatch):
    monkeypatch.setattr(cases_module, "MOST_ELEMENTS", 3 * 3 * 2 * 4)
    (case,) = norm_cases(*taken_apart())
    assert ((3, 3, 2, 4), "float32") in case.feeds.values()
    assert norm_outcome(case) == CaseOutcome()


def test_what_cannot_be_run_is_not_proven_and_what_fails_only_apart_is_wrong():
    (case,) = norm_cases(*taken_apart())
    broken = dataclasses.replace(case, fused=case.apart, outputs=[("none:0", case.outputs[0][1])])
    assert "none" in norm_outcome(broken).not_proven
    broken = dataclasses.replace(case, outputs=[(case.outputs[0][0], "none:0")])
    assert norm_outcome(broken).differs.startswith("only apart it fails: ")


def changed(flat, change):
    graph_def = copy.deepcopy(flat.graph_def)
    for node in graph_def.node:
        change(node)
    return dataclasses.replace(flat, graph_def=graph_def)


def with_epsilon(node):
    if "FusedBatchNorm" in node.op:
        node.attr["epsilon"].f = 0.5


def with_one_more(node):
    if node.name == "gradient/apart/channels":
        value = np.array(5, np.float32)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))


def without_mean(node):
    if node.op == "Sub" and node.name.startswith("norm/apart"):
        node.op = "AddV2"


@pytest.mark.parametrize("change", [with_epsilon, with_one_more, without_mean])
def test_a_wrong_formula_is_found(change):
    fused, apart, properties = taken_apart()
    proof = prove_norms(fused, changed(apart, change), properties, 10.0)
    assert proof.differing and proof.proven_ops == 0


def test_everything_else_stays_as_it_was():
    fused, apart, properties = taken_apart()

    def other_op(node):
        node.op = "Tanh" if node.name == "Identity" else node.op

    def other_input(node):
        if node.name == "reader_of_the_images":
            node.input[0] = "x"

    for change in (other_op, other_input):
        proof = prove_norms(fused, changed(apart, change), properties, 10.0)
        assert proof.differing[0].startswith("taking norms apart:") and proof.distinct_ops == 0


def waiting(node):
    if node.name == "reader_of_the_images":
        node.input.extend(["^gradient", "^norm"])


def test_who_waits_for_one_waits_for_what_has_its_name():
    """As tf.gradients has it: a NoOp behind each gradient."""
    fused, apart, properties = taken_apart()
    proof = prove_norms(changed(fused, waiting), changed(apart, waiting), properties, 10.0)
    assert (proof.distinct_ops, proof.proven_ops, proof.differing) == (1, 1, [])
    for one, other in ((fused, changed(apart, waiting)), (changed(fused, waiting), apart)):
        assert prove_norms(one, other, properties, 10.0).differing


def test_a_step_without_norms_needs_no_proof():
    fused, _, properties = taken_apart()
    assert prove_norms(fused, fused, properties, 0.0).distinct_ops == 0
