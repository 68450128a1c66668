"""Benchmark graphs written and read back."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from graphs.errors import OutputError
from graphs.zoo import write, writing
from tests.graphs.zoo.tiny_graphs import feeds_of, tiny


def test_graph_defs_round_trip(tmp_path: Path) -> None:
    graph = tiny("cifar10")
    write(graph, tmp_path / "new" / "graph.pb")
    write(graph, tmp_path / "graph.pbtxt")
    binary = graph_pb2.GraphDef.FromString((tmp_path / "new" / "graph.pb").read_bytes())
    text = text_format.Parse((tmp_path / "graph.pbtxt").read_text(), graph_pb2.GraphDef())
    assert binary == text == graph.graph.as_graph_def()


def test_meta_graph_def_names_train_op_and_variables(tmp_path: Path) -> None:
    write(tiny("cifar10"), tmp_path / "graph.meta")
    write(tiny("cifar10"), tmp_path / "graph.meta", overwrite=True)
    meta = meta_graph_pb2.MetaGraphDef.FromString((tmp_path / "graph.meta").read_bytes())
    assert list(meta.collection_def["train_op"].node_list.value) == ["train_op"]
    meta_of_batch_norm = writing._meta_graph_def(tiny("resnet50"))
    assert list(meta_of_batch_norm.collection_def["train_op"].node_list.value) == ["train_op"]
    for key in ("variables", "trainable_variables"):
        assert len(meta.collection_def[key].bytes_list.value) == 10
    with tf.Graph().as_default() as graph:
        tf.compat.v1.train.import_meta_graph(meta)
        with tf.compat.v1.Session(graph=graph) as session:
            session.run("init")
            assert np.isfinite(session.run("loss:0", feeds_of(tiny("cifar10"))))


def test_saved_model_trains_through_its_signature(tmp_path: Path) -> None:
    graph = tiny("rnnlm")
    num_ops = len(graph.graph.get_operations())
    write(graph, tmp_path / "model")
    feeds = feeds_of(graph)
    with tf.compat.v1.Session(graph=graph.graph) as session:
        session.run(graph.init_op)
        wanted = [session.run([graph.loss, graph.train_op], feeds)[0] for _ in range(2)]
    train_step = tf.saved_model.load(str(tmp_path / "model")).signatures["train_step"]
    arguments = {name.removesuffix(":0"): tf.constant(array) for name, array in feeds.items()}
    losses = [train_step(**arguments)["loss"].numpy() for _ in range(2)]
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert losses[1] < losses[0]
    assert len(graph.graph.get_operations()) == num_ops
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    (tmp_path / "graph.pb").write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        write(tiny("cifar10"), tmp_path / "graph.pb")
    assert (tmp_path / "graph.pb").read_text() == "mine"


def test_a_saved_model_is_replaced_when_the_new_one_is_whole(tmp_path: Path) -> None:
    for name in ("made", "stands"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").write_text(name)
    writing._replace(tmp_path / "made", tmp_path / "stands")
    assert (tmp_path / "stands" / "saved_model.pb").read_text() == "made"


def test_only_a_saved_model_directory_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "graph.pb").mkdir()
    for name, message in (
        ("folder", "no SavedModel"),
        ("file", "a file stands there"),
        ("graph.pb", "a directory stands there"),
    ):
        with pytest.raises(OutputError, match=message):
            write(tiny("cifar10"), tmp_path / name, overwrite=True)
    assert (tmp_path / "folder" / "letter.txt").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "mine"


def test_a_place_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="choose another path"):
        write(tiny("cifar10"), tmp_path / "file" / "graph.pb")


def test_variables_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "variable_bytes", lambda zoo_graph: 10**15)
    with pytest.raises(OutputError, match=r"1000000\.0 GB of initialised variables"):
        write(tiny("cifar10"), tmp_path / "model")
    assert not (tmp_path / "model").exists()
