"""What is in a training step of a few ops, counted by hand."""

import pytest

from tfplace.report.inspection import inspect


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
    rest = {key: value for key, value in vars(inspection).items() if key != "op_types"}
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
    }
