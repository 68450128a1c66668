"""Sums whose terms are added one after another: the same bits, and nothing joins them again."""

import copy

import numpy as np
import pytest
import tensorflow as tf

from rewrite.memory.recompute import MemoryPlan, check_plan, has_plan, with_plan, without_plan
from rewrite.memory.sums_in_turn import IN_TURN, added_in_turn, sums_of
from rewrite.pass_base import RewriteError

SUM = [("", "total")]


def graph_of(num_terms, in_twos=False, dtype=tf.float32):
    """A sum of products, of which each is made for it; at once, or two by two as some write it."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(dtype, [num_terms, 5, 7], name="x")
        y = tf.compat.v1.placeholder(dtype, [num_terms, 7, 3], name="y")
        terms = [tf.matmul(x[k], y[k]) for k in range(num_terms)]
        while in_twos and len(terms) > 2:
            terms[:2] = [tf.raw_ops.AddN(inputs=terms[:2])]
        total = tf.raw_ops.AddN(inputs=terms, name="total")
        tf.raw_ops.Exp(x=total, name="out")
    return graph.as_graph_def()


def value(graph_def, num_terms, dtype=np.float32):
    rng = np.random.default_rng(0)
    fed = {
        "x:0": rng.standard_normal((num_terms, 5, 7)).astype(dtype),
        "y:0": rng.standard_normal((num_terms, 7, 3)).astype(dtype),
    }
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    with tf.compat.v1.Session(graph=graph) as session:
        return session.run("out:0", fed)


@pytest.mark.parametrize("in_twos", [False, True])
@pytest.mark.parametrize("num_terms", [3, 8, 9, 10, 17, 18, 40])
def test_the_sum_is_the_same_bit_for_bit(num_terms, in_twos):
    given = graph_of(num_terms, in_twos)
    planned = with_plan(given, MemoryPlan(sums=SUM))
    np.testing.assert_array_equal(value(planned, num_terms), value(given, num_terms))
    assert has_plan(planned)
    assert check_plan(given, planned) == len(_adding(planned))
    assert without_plan(planned) == given


def test_another_sequence_would_give_other_bits():
    given = with_plan(graph_of(40), MemoryPlan(sums=SUM))
    other = copy.deepcopy(given)
    for node in other.node:
        node.input[:] = [name for name in node.input if not name.startswith("^")]
    first, *_, last = (node for node in _adding(other) if node.op == "AddV2")
    first.input[0], last.input[1] = last.input[1], first.input[0]
    assert np.any(value(other, 40) != value(given, 40))


def test_no_op_but_the_sum_holds_more_than_two_terms():
    planned = with_plan(graph_of(20), MemoryPlan(sums=SUM))
    (total,) = (node for node in planned.node if node.name == "total")
    assert [node.op for node in _adding(planned)].count("AddV2") == 18
    assert {node.op for node in _adding(planned)} == {"AddV2", "Snapshot"}
    assert {len(node.input) for node in (*_adding(planned), total)} == {1, 2}


def test_sums_in_functions():
    @tf.function(input_signature=[tf.TensorSpec([6, 4, 4])])
    def f(x):
        total = tf.add_n([tf.matmul(x[k], x[k], name=f"term_{k}") for k in range(6)], name="total")
        return tf.exp(total)

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [6, 4, 4], name="x")
        tf.identity(f.get_concrete_function()(x), name="out")
    given = graph.as_graph_def()
    (function,) = given.library.function
    name = function.signature.name
    planned = with_plan(given, MemoryPlan(sums=[(name, "total")]))
    assert check_plan(given, planned) == 4
    assert without_plan(planned) == given
    x = np.random.default_rng(0).standard_normal((6, 4, 4)).astype(np.float32)
    values = []
    for graph_def in (given, planned):
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            values.append(session.run("out:0", {"x:0": x}))
    np.testing.assert_array_equal(*values)


def _other_term(planned):
    _adding(planned)[0].input[1] = _adding(planned)[1].input[1]


def _other_op(planned):
    _adding(planned)[0].op = "Sub"


def _other_inputs_before(planned):
    total = next(node for node in planned.node if node.name == "total")
    total.attr["_added_at_once"].list.s[0] = b"x"


def _nothing_marked(planned):
    del _adding(planned)[0].attr[IN_TURN]


def _adding(planned):
    return [node for node in planned.node if IN_TURN in node.attr]


@pytest.mark.parametrize("change", [_other_term, _other_op, _other_inputs_before, _nothing_marked])
def test_what_adds_something_else_is_found(change):
    given = graph_of(12)
    planned = with_plan(given, MemoryPlan(sums=SUM))
    change(planned)
    with pytest.raises(RewriteError):
        check_plan(given, planned)


def test_what_is_read_twice_is_a_term():
    with tf.Graph().as_default() as graph:
        x = [tf.compat.v1.placeholder(tf.float32, [2]) for _ in range(4)]
        first = tf.raw_ops.AddN(inputs=x[:2], name="first")
        tf.raw_ops.AddN(inputs=[first, *x[2:]], name="total")
        tf.raw_ops.Exp(x=first)
    ((total, terms),) = sums_of(graph.as_graph_def().node)
    assert total.name == "total"
    assert "first" in terms
    assert len(terms) == 3
    with pytest.raises(RewriteError, match="no sum"):
        with_plan(graph.as_graph_def(), MemoryPlan(sums=[("", "first")]))


def test_who_reads_a_list_reads_past_it():
    """Also through a list of a list, in functions, and taken out again byte for byte."""

    @tf.function(input_signature=[tf.TensorSpec([3]), tf.TensorSpec([3])])
    def step(x, y):
        a, b = tf.raw_ops.IdentityN(input=[tf.exp(x), tf.sin(y)], name="inner")
        c, d = tf.raw_ops.IdentityN(input=[b, a], name="outer")
        with tf.control_dependencies([d]):
            return tf.concat([c - d, a * b, b], 0, name="out")

    graph_def = tf.compat.v1.GraphDef()
    graph_def.library.function.add().CopyFrom(step.get_concrete_function().function_def)
    graph_def.library.function[0].signature.name = "step"
    given = copy.deepcopy(graph_def)
    lists = [("step", "outer"), ("step", "inner")]

    planned = with_plan(given, MemoryPlan(sums=lists))

    body = {node.name: node for node in planned.library.function[0].node_def}
    assert list(body["sub"].input) == ["Sin:y:0", "Exp:y:0"]
    assert list(body["mul"].input) == ["Exp:y:0", "Sin:y:0", "^outer"]
    assert "Sin:y:0" in body["out"].input
    assert added_in_turn(planned, lists=True) == lists[::-1]
    assert added_in_turn(planned, lists=False) == []
    assert check_plan(given, planned) == 4
    assert without_plan(planned) == given == graph_def
    body["sub"].input[0] = "Exp:y:0"
    with pytest.raises(RewriteError, match="'step/sub': it adds other terms"):
        check_plan(given, planned)
