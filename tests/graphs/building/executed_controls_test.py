"""Control edges that TensorFlow drops or merges, on graphs small enough to see it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphs.building.executed_controls import step_end, tied_end, without_implied, without_step_end
from tests.builders import Op, build_problem

STEP = [
    Op("read"),
    Op("work", inputs=("read:0",)),
    Op("update", inputs=("work:0", "^read")),
    Op("other", inputs=("work:0",)),
    Op("done", inputs=("^read", "^update", "^other"), type="NoOp"),
    Op("loss", inputs=("work:0", "^done"), type="Identity"),
    Op("all", inputs=("^update", "^loss"), type="NoOp"),
    Op("seen", inputs=("work:0",), type="Identity"),
]


def graph_of(ops):
    return build_problem(ops).graph


def controls(graph):
    """(what is waited for, what waits) by name."""
    rows = zip(graph.use_tensor.tolist(), graph.use_op.tolist(), strict=True)
    return [
        (graph.op_names[graph.tensor_producer[tensor]], graph.op_names[op])
        for tensor, op in rows
        if graph.tensor_output[tensor] < 0
    ]


def test_a_control_edge_with_a_longer_way_beside_it_is_dropped():
    graph = without_implied(graph_of(STEP))
    assert sorted(controls(graph)) == [
        ("done", "loss"),
        ("loss", "all"),
        ("other", "done"),
        ("update", "done"),
    ]
    assert len(graph.use_op) - len(controls(graph)) == 5  # data edges stay


def test_what_only_waits_for_the_step_is_its_end():
    graph = without_implied(graph_of(STEP))
    end = step_end(graph)
    assert [graph.op_names[op] for op in end.ops] == ["done", "loss", "all"]
    assert [graph.op_names[op] for op in end.waited_for] == ["update", "other"]
    assert controls(without_step_end(graph)) == []


def test_a_no_op_that_an_op_waits_for_is_no_end():
    ops = [Op("a"), Op("gate", inputs=("^a",), type="NoOp"), Op("b", inputs=("^gate",))]
    graph = graph_of(ops)
    assert step_end(graph).ops.size == 0
    assert controls(without_step_end(graph)) == [("a", "gate"), ("gate", "b")]


def test_the_ops_of_the_end_share_a_device_with_all_that_lies_beside_them():
    group = np.array([0, -1, 0, 1, 1, -1], np.int32)
    everywhere = np.ones((6, 2), bool)
    tied = tied_end(group, np.array([2, 4]), everywhere)
    assert tied.tolist() == [0, -1, 0, 0, 0, -1]
    assert tied_end(group, np.array([2]), everywhere) is group
    apart = everywhere.copy()
    apart[2, 0] = apart[4, 1] = False
    assert tied_end(group, np.array([2, 4]), apart) is group


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_what_is_left_reaches_what_it_did(seed, num_ops):
    generator = np.random.default_rng(seed)
    ops = []
    for i in range(num_ops):
        data = [f"{j}:0" for j in range(i) if generator.random() < 0.15]
        waits = [f"^{j}" for j in range(i) if f"{j}:0" not in data and generator.random() < 0.4]
        ops.append(Op(str(i), inputs=(*data, *waits)))
    before, after = graph_of(ops), without_implied(graph_of(ops))
    assert np.array_equal(_reached(before), _reached(after))
    kept = set(controls(after))
    for edge in kept:  # and nothing else can be left out
        rest = after.use_op.astype(np.int64) >= 0
        names = (after.op_names[after.tensor_producer[t]] for t in after.use_tensor)
        for use, (producer, op) in enumerate(zip(names, after.use_op, strict=True)):
            rest[use] = (producer, after.op_names[op]) != edge or (
                after.tensor_output[after.use_tensor[use]] >= 0
            )
        assert not _reached(after, rest)[int(edge[0]), int(edge[1])]


def _reached(graph, kept=slice(None)):
    """bool[N, N]: whether the second op comes after the first one by some way."""
    reached = np.zeros((graph.num_ops, graph.num_ops), bool)
    sources = graph.tensor_producer[graph.use_tensor][kept]
    for source, op in sorted(zip(sources, graph.use_op[kept], strict=True), key=lambda e: e[1]):
        reached[:, op] |= reached[:, source]
        reached[source, op] = True
    return reached
