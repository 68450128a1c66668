"""SavedModels whose loading or signatures act outside of the process are copied for runs."""

import os

import pytest
import tensorflow as tf

from graphs.effects import acts_when_loaded
from graphs.loading.runnable_copy import runnable_copy
from graphs.loading.sniff import sniff


class Model(tf.Module):
    """A step that may write a file, beside a summary writer that loading makes anew."""

    def __init__(self, file, logs):
        super().__init__()
        self.weight = tf.Variable([1.0, 2.0])
        self.file = file
        if logs:
            self.writer = tf.summary.create_file_writer(logs, experimental_trackable=True)

    @tf.function(input_signature=[tf.TensorSpec([2], name="x")])
    def step(self, x):
        y = x * self.weight
        if self.file:
            tf.io.write_file(self.file, tf.strings.as_string(y[0]))
        if hasattr(self, "writer"):
            with self.writer.as_default(step=0):
                tf.summary.scalar("y", y[0])
        return {"y": y}


def saved(tmp_path, file="", logs=""):
    model = Model(file, logs)
    path = str(tmp_path / "model")
    tf.saved_model.save(model, path, signatures={"step": model.step})
    return path


def test_what_only_its_saver_writes_is_no_reason(tmp_path):
    path = saved(tmp_path)
    (meta_graph,) = sniff(path).proto.meta_graphs
    assert any(n.op == "SaveV2" for f in meta_graph.graph_def.library.function for n in f.node_def)
    assert not acts_when_loaded(meta_graph)
    assert runnable_copy(path, str(tmp_path)) == path


@pytest.mark.parametrize("kind", ["file", "logs"])
def test_a_copy_computes_the_same_and_leaves_nothing(tmp_path, kind):
    path = saved(tmp_path, **{kind: str(tmp_path / "written")})
    before = sorted(os.listdir(tmp_path / "written")) if kind == "logs" else None
    copy = runnable_copy(path, str(tmp_path))
    assert copy != path
    step = tf.saved_model.load(copy).signatures["step"]
    assert step(x=tf.constant([3.0, 4.0]))["y"].numpy().tolist() == [3.0, 8.0]
    if kind == "file":
        assert not (tmp_path / "written").exists()
    else:
        assert sorted(os.listdir(tmp_path / "written")) == before
