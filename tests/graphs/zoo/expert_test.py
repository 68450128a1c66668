"""Parts of the expert placement: reading them, and spreading them to gradients."""

import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from graphs.zoo import build, expert_placement
from graphs.zoo.dlrm import spread
from graphs.zoo.expert import PART_ATTRIBUTE, PARTS_ATTRIBUTE
from graphs.zoo.network import Network, Training, v1
from tests.graphs.zoo.tiny_graphs import tiny


def _graph_def(parts: dict[str, tuple[int | None, list[str]]]) -> graph_pb2.GraphDef:
    """Nodes of four parts: {name: (part, or None for no attribute; inputs)}."""
    graph_def = graph_pb2.GraphDef()
    for name, (part, inputs) in parts.items():
        node = graph_def.node.add(name=name, op="NoOp", input=inputs)
        if part is not None:
            node.attr[PART_ATTRIBUTE].i = part
            node.attr[PARTS_ATTRIBUTE].i = 4
    return graph_def


def test_parts_share_gpus_in_order() -> None:
    graph_def = _graph_def({name: (part, []) for part, name in enumerate("abcd")})
    assert expert_placement(graph_def, "abcd", 1) == {"a": 0, "b": 0, "c": 0, "d": 0}
    assert expert_placement(graph_def, "abcd", 2) == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert expert_placement(graph_def, "abcd", 3) == {"a": 0, "b": 0, "c": 1, "d": 2}
    assert expert_placement(graph_def, "ad", 8) == {"a": 0, "d": 6}


def test_an_op_without_a_part_follows_its_inputs() -> None:
    graph_def = _graph_def(
        {
            "fed": (-1, []),
            "a": (3, []),
            "b": (None, ["loose", "a:1"]),
            "c": (None, ["b", "^a"]),
            "loose": (None, []),
            "loop": (None, ["loop"]),
        }
    )
    assert expert_placement(graph_def, ["fed", "b", "c", "loose", "loop"], 4) == {
        "fed": None,
        "b": 3,
        "c": 3,
        "loose": None,
        "loop": None,
    }


def test_other_graphs_have_no_expert() -> None:
    assert expert_placement(_graph_def({"a": (None, [])}), ["a"], 2) is None


def test_no_gpu_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 1 GPU"):
        expert_placement(_graph_def({"a": (0, [])}), ["a"], 0)


def test_an_op_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="no op 'b' in the graph"):
        expert_placement(_graph_def({"a": (0, [])}), ["a", "b"], 1)


def test_gradients_and_updates_go_with_the_forward_op() -> None:
    network = Network(2)
    with network.graph.as_default():
        inputs = network.placeholder("inputs", tf.float32, (2, 2))
        with network.part(0):
            first = network.weights("first", [2, 2], 1.0)
            hidden = tf.tanh(tf.matmul(inputs, first, name="product_0"), name="hidden")
        with network.part(1):
            second = network.weights("second", [2, 2], 1.0)
            outputs = tf.matmul(hidden, second, name="product_1")
            loss = tf.reduce_sum(outputs * outputs, name="total")
    network.train(loss, Training(lambda: v1.train.MomentumOptimizer(0.1, 0.9)))
    part = {node.name: node.attr[PART_ATTRIBUTE].i for node in network.graph.as_graph_def().node}
    assert {name: part[name] for name in part if name.startswith("gradients/product")} == {
        "gradients/product_1_grad/MatMul": 1,
        "gradients/product_1_grad/MatMul_1": 1,
        "gradients/product_0_grad/MatMul": 0,
        "gradients/product_0_grad/MatMul_1": 0,
    }
    assert part["gradients/hidden_grad/TanhGrad"] == 0
    assert part["gradients/total_grad/Tile"] == 1
    assert part["first/Momentum"] == 0
    assert part["second/Momentum"] == 1
    assert part["apply/update_first/ResourceApplyMomentum"] == 0
    assert part["apply/update_second/ResourceApplyMomentum"] == 1
    assert part["inputs"] == part["train_op"] == -1


def test_a_part_beyond_the_last_is_an_error() -> None:
    network = Network(2)
    with (
        pytest.raises(ValueError, match="part 2 of an expert placement of 2 parts"),
        network.part(2),
    ):
        pass


def test_rnnlm_has_a_gpu_per_layer() -> None:
    graph_def = tiny("rnnlm").graph.as_graph_def()
    names = [
        "tokens",
        "embedding/table",
        "lstm_0/step_2/MatMul",
        "lstm_1/step_0/MatMul",
        "gradients/lstm_0/step_1/MatMul_grad/MatMul_1",
        "gradients/lstm_0/kernel/value/ReadVariableOp_gradient_sum/AddN",
        "softmax/step_0/MatMul",
        "apply/update_lstm_1/kernel/ResourceApplyGradientDescent",
    ]
    assert expert_placement(graph_def, names, 2) == dict(
        zip(names, [None, 0, 0, 1, 0, 0, 1, 1], strict=True)
    )


def test_dlrm_tables_are_even_on_two_four_and_eight_gpus() -> None:
    assert spread([8, 1, 1, 2, 4], range(4)) == [0, 3, 3, 3, 2]
    graph_def = build("dlrm").graph.as_graph_def()
    rows = {
        node.name: node.attr["shape"].shape.dim[0].size
        for node in graph_def.node
        if node.op == "VarHandleOp" and node.name.startswith("table_")
    }
    largest = {}
    for num_gpus in (2, 4, 8):
        gpu_of_table = expert_placement(graph_def, rows, num_gpus)
        assert gpu_of_table is not None
        totals = [0] * num_gpus
        for name, gpu in gpu_of_table.items():
            assert gpu is not None
            totals[gpu] += rows[name]
        largest[num_gpus] = max(totals) * 128 * 4 / 2**30
    # GiB; a K80 has 12, nine tenths of which may be filled. On two GPUs the second to fourth
    # largest of the big five share one, on more the largest table has one alone.
    pair = (8_351_593 + 7_046_547 + 2_202_608) * 128 * 4 / 2**30
    alone = 10_131_227 * 128 * 4 / 2**30
    assert largest == pytest.approx({2: pair, 4: alone, 8: alone}, rel=1e-3)
