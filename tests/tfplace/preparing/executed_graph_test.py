"""What Grappler makes of a graph, mapped back to the ops that the user wrote."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfplace.measurement.training_run import ExecutedNode
from tfplace.preparing.executed_graph import attribute


def node_defs(*lines: str) -> list[Any]:
    """NodeDefs from "name Op input input"."""
    graph = tf.compat.v1.GraphDef()
    for line in lines:
        name, op, *inputs = line.split()
        graph.node.add(name=name, op=op, input=inputs)
    return list(graph.node)


def _executed(*lines: str) -> list[ExecutedNode]:
    rows = [line.split() for line in lines]
    return [ExecutedNode(name, op, "/device:CPU:0", tuple(rest)) for name, op, *rest in rows]


def _by_name(nodes: Sequence[Any], executed: Sequence[ExecutedNode]) -> dict[str, list[str]]:
    found = attribute(nodes, executed).nodes_of
    return {name: [nodes[i].name for i in indices] for name, indices in found.items()}


DENSE = node_defs(
    "x Placeholder",
    "w VarHandleOp",
    "read ReadVariableOp w",
    "product MatMul x read",
    "b Const",
    "sum BiasAdd product b",
)


def test_an_op_that_runs_as_written_stands_for_itself() -> None:
    executed = _executed(
        "read ReadVariableOp w", "product _MklMatMul x read", "sum BiasAdd product b"
    )
    found = _by_name(DENSE, executed)
    assert found == {"read": ["read"], "product": ["product"], "sum": ["sum"]}


def test_a_fused_op_stands_for_all_that_it_took_over() -> None:
    executed = _executed("read ReadVariableOp w", "sum _MklNativeFusedMatMul x read b")
    assert _by_name(DENSE, executed)["sum"] == ["sum", "product"]
    absent = attribute(DENSE, executed).is_absent
    np.testing.assert_array_equal(absent, [True, True, False, True, True, False])


def test_places_are_those_of_the_executed_list_and_of_what_came_before() -> None:
    executed = _executed("_recv_x _Recv", "w VarHandleOp", "sum _FusedMatMul x read b")
    place = attribute(DENSE, executed).place
    np.testing.assert_array_equal(place, [-1, 1, 2, 2, -1, 2])


def test_a_chain_of_additions_becomes_one_of_a_new_name() -> None:
    nodes = node_defs(
        "g/a Relu", "g/b Relu", "g/c Relu", "g/d Relu",
        "g/AddN AddN g/a g/b", "g/AddN_1 AddN g/AddN g/c", "g/AddN_2 AddN g/AddN_1 g/d",
        "use Neg g/AddN_2",
    )  # fmt: skip
    joined = "g/ArithmeticOptimizer/AddOpsRewrite_AddN_2"
    executed = _executed(
        "g/a Relu", "g/b Relu", "g/c Relu", "g/d Relu",
        f"{joined} AddN g/a g/b g/c g/d", f"use Neg {joined}",
    )  # fmt: skip
    found = _by_name(nodes, executed)
    assert found[joined] == ["g/AddN_2", "g/AddN_1", "g/AddN"]
    assert found["use"] == ["use"]


def test_folded_constants_and_equal_ops_cost_their_users_nothing() -> None:
    """size and scale are folded into a constant, twin is merged with first."""
    nodes = node_defs(
        "x Placeholder", "shape Shape x", "size Prod shape", "first Neg x", "twin Neg x",
        "scale Cast size", "mean RealDiv first scale", "other Mul twin scale",
    )  # fmt: skip
    executed = _executed(
        "first Neg x",
        "ConstantFolding/mean_recip Const",
        "mean Mul first ConstantFolding/mean_recip",
        "other Mul first ConstantFolding/scale-folded-0",
    )
    found = _by_name(nodes, executed)
    assert found == {
        "first": ["first"],
        "ConstantFolding/mean_recip": ["mean"],
        "mean": ["mean"],
        "other": ["other"],
    }


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("loop/body/_1/double_0", "loop"),
        ("ConstantFolding/net/offset-folded-1", "net/offset"),
        ("net/conv-0-TransposeNHWCToNCHW-LayoutOptimizer", "net/conv"),
        ("net/ArithmeticOptimizer/HoistCommonFactor_Add_conv", "net/conv"),
        ("net/ArithmeticOptimizer/AddOpsRewrite_conv/tmp_var_accum_3", "net/conv"),
    ],
)
def test_names_that_tensorflow_makes(name: str, op: str) -> None:
    nodes = node_defs("loop While", "net/offset ConcatOffset", "net/conv Conv2D")
    assert _by_name(nodes, _executed(f"{name} Anything")) == {name: [op]}


def test_what_only_the_runtime_knows_stands_for_nothing() -> None:
    executed = _executed("_send_loss_0 _Send sum", "tfplace.slot.0/feed_0/read ReadVariableOp")
    assert _by_name(DENSE, executed) == {}


def test_shares_follow_what_each_would_cost_alone() -> None:
    found = attribute(DENSE, _executed("sum _FusedMatMul x read b"))
    alone = np.array([0.0, 0.0, 0.0, 3.0, 0.0, 1.0])
    shared = found.shared({"sum": 8.0, "unknown": 5.0}, alone)
    np.testing.assert_array_equal(shared, [0, 0, 0, 6, 0, 2])


def test_without_prices_the_op_of_that_name_has_it_all() -> None:
    found = attribute(DENSE, _executed("sum _FusedMatMul x read b"))
    shared = found.shared({"sum": 8.0}, np.zeros(6))
    np.testing.assert_array_equal(shared, [0, 0, 0, 0, 0, 8])
