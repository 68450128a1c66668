"""Values of variables are the same whether they are made and written together or in pieces."""

import numpy as np
import pytest
import tensorflow as tf

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite import build_saved_model as building
from rewrite import values_in_pieces
from rewrite.model_builder import _request
from rewrite.values_in_pieces import pieces_of

v1 = tf.compat.v1


def _variable(name, value):
    return v1.get_variable(name, initializer=value, use_resource=True)


def _momentum(first=None):
    """The graph of a product of two variables, each with a moment."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        w = _variable("w", tf.random.normal([3, 5], seed=1) if first is None else first())
        b = _variable("b", tf.random.uniform([5], seed=2))
        loss = tf.reduce_sum((x @ w + b) ** 2, name="loss")
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
        v1.global_variables_initializer()
    return graph.as_graph_def()


def _source(graph_def, tmp_path):
    path = tmp_path / "model.pb"
    path.write_bytes(graph_def.SerializeToString())
    return load(str(path), LoadOptions())


def _made(source, folder, monkeypatch, piece_bytes):
    """The saved_model.pb, the values, and how many files have them."""
    monkeypatch.setattr(values_in_pieces, "PIECE_BYTES", piece_bytes)
    building._built(_request(source, folder, False))
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    values = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    files = sorted(each.name for each in (folder / "variables").iterdir())
    return (folder / "saved_model.pb").read_bytes(), values, files


def test_values_and_model_are_the_same(tmp_path, monkeypatch):
    source = _source(_momentum(), tmp_path)
    whole, values, files = _made(source, tmp_path / "whole", monkeypatch, 1 << 20)
    assert files == ["variables.data-00000-of-00001", "variables.index"]
    model, others, files = _made(source, tmp_path / "pieces", monkeypatch, 80)
    assert files == [*(f"variables.data-0000{i}-of-00002" for i in range(2)), "variables.index"]
    assert model == whole
    assert others.keys() == values.keys() and len(values) == 4
    for key, value in values.items():
        np.testing.assert_array_equal(others[key], value)
    assert np.ptp(values["w"]) > 0.0


def _shared():
    """Two variables that begin with the same random numbers."""
    with tf.Graph().as_default() as graph:
        numbers = tf.random.normal([5], seed=1)
        x = v1.placeholder(tf.float32, [5], name="x")
        y = _variable("w", numbers) * x + _variable("b", numbers)
        tf.identity(y, name="y")
        v1.global_variables_initializer()
    return graph.as_graph_def()


def _of_another():
    """A variable that begins with what another one holds."""
    with tf.Graph().as_default() as graph:
        w = _variable("w", tf.random.normal([5], seed=1))
        with tf.control_dependencies([w.initializer]):
            begin = tf.raw_ops.ReadVariableOp(resource=w.handle, dtype=tf.float32)
        x = v1.placeholder(tf.float32, [5], name="x")
        tf.identity(w * x + _variable("b", begin), name="y")
        v1.global_variables_initializer()
    return graph.as_graph_def()


def _references():
    with tf.Graph().as_default() as graph:
        w = v1.get_variable("w", initializer=tf.ones([5]), use_resource=False)
        x = v1.placeholder(tf.float32, [5], name="x")
        tf.identity(w * x, name="y")
        v1.global_variables_initializer()
    return graph.as_graph_def()


@pytest.mark.parametrize("make", [_shared, _of_another, _references])
def test_what_hangs_together_is_not_taken_apart(make, tmp_path, monkeypatch):
    monkeypatch.setattr(values_in_pieces, "PIECE_BYTES", 4)
    source = _source(make(), tmp_path)
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(source.graph_def, name="")
    assert pieces_of(graph, source.initialization, source.variables) is None


def test_a_large_variable_is_a_piece_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(values_in_pieces, "PIECE_BYTES", 40)
    source = _source(_momentum(), tmp_path)
    with tf.Graph().as_default() as graph:
        v1.import_graph_def(source.graph_def, name="")
    found = pieces_of(graph, source.initialization, source.variables)
    sizes = [[int(np.prod(each.shape)) for each in piece] for piece in found.variables]
    assert sizes == [[15], [5], [15], [5]]
