"""SavedModels whose protos lie in chunks."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from graphs.errors import ModelError
from graphs.loading.load import load
from graphs.loading.sniff import new_message
from tests.graphs.loading import model_files
from tests.graphs.loading.chunked_writer import write_chunked
from tests.graphs.loading.load_test import TWO_INFERENCE, X, Y


@pytest.mark.parametrize("brotli", [False, True])
def test_chunked_saved_model(served_v2, folder, brotli):
    """The function library and a large constant lie in chunks of their own.

    Files of this writer were read by TensorFlow's own C++ merger once, with equal results.
    """
    path = folder / f"chunked_{brotli}"
    shutil.copytree(served_v2, path)
    whole = new_message("saved_model")
    whole.ParseFromString((path / "saved_model.pb").read_bytes())
    constant = whole.meta_graphs[0].graph_def.node.add(name="large", op="Const")
    constant.attr["dtype"].type = tf.uint8.as_datatype_enum
    constant.attr["value"].tensor.dtype = tf.uint8.as_datatype_enum
    constant.attr["value"].tensor.tensor_shape.dim.add(size=200_000)
    content = np.random.default_rng(0).bytes(200_000)  # more than two Riegeli blocks
    base = new_message("saved_model")
    base.CopyFrom(whole)
    constant.attr["value"].tensor.tensor_content = content
    graph = base.meta_graphs[0].graph_def
    library = graph.library.SerializeToString()
    graph.ClearField("library")
    signature = base.meta_graphs[0].signature_def["serving_default"]
    packed_signature = signature.SerializeToString()
    signature.Clear()
    (path / "saved_model.pb").unlink()
    meta_graph = [2, ("index", 0)]
    node = [1, ("index", len(graph.node) - 1)]
    write_chunked(
        path / "saved_model.cpb",
        [[base.SerializeToString(), library], [content, packed_signature]],
        [
            ([*meta_graph, 2, *node, 5, ("key", "value"), 8, 4], 2),
            ([*meta_graph, 2, 2], 1),
            ([*meta_graph, 5, ("key", "serving_default")], 3),
        ],
        brotli,
    )
    model = load(path, TWO_INFERENCE)
    assert model.meta_graph_def == whole.meta_graphs[0]
    ((y,),) = model_files.run(model, {"serving_default_x:0": X})
    np.testing.assert_array_equal(y, Y)
    assert tf.saved_model.load(model.saved_model_dir).w.shape == [4, 3]
    damaged = bytearray((path / "saved_model.cpb").read_bytes())
    damaged[70_000] ^= 1
    (path / "saved_model.cpb").write_bytes(damaged)
    with pytest.raises(ModelError, match="a damaged chunk at byte"):
        load(path)
