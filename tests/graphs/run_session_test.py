import numpy as np
import pytest
import tensorflow as tf

from graphs import run_session
from graphs.run_session import blocks, is_large, read_variables, write_variables


def test_a_large_value_is_written_in_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_session, "BLOCK_BYTES", 40)
    large, small = np.arange(35, dtype=np.float32).reshape(7, 5), np.arange(9, dtype=np.float32)
    assert [first for first, _ in blocks(large)] == [0, 2, 4, 6]
    assert is_large("VarHandleOp", large) and not is_large("VarHandleOp", small)
    assert not is_large("VariableV2", large) and not is_large("VarHandleOp", [b"a" * 99])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in (("large", large), ("small", small)):
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=value.shape, shared_name=name, name=name)
        write_variables(session, {"large": large, "small": small})
        values = read_variables(session, ["large", "small"])
    np.testing.assert_array_equal(values["large"], large)
    np.testing.assert_array_equal(values["small"], small)
