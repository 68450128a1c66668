"""--tags: which MetaGraphDef of a SavedModel is placed; all of them are emitted."""

import json

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.flatten import flatten
from graphs.flat_graph import Origin
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite.emit import emit
from tests.graphs.loading.model_files import write_saved_model_v1
from tfplace.cli import main
from tfplace.proving import proof

v1 = tf.compat.v1
X = np.ones((2, 4), np.float32)
TWICE = LoadOptions(tags=("serve", "twice"), mode="inference", batch_size=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tags") / "model"
    write_saved_model_v1(path, ("serve",), ("serve", "twice"))
    return str(path)


def _inspect(model, *flags):
    words = ["inspect", model, "--cluster=k80x2", "--mode=inference", "--batch_size=2"]
    return main([*words, "--format=json", "--verbosity=-1", *flags])


@pytest.mark.parametrize(("flags", "num_adds"), [((), 0), (("--tags= serve, twice",), 1)])
def test_the_flag_chooses_the_meta_graph(model, capsys, flags, num_adds):
    assert _inspect(model, *flags) == 0
    rows = json.loads(capsys.readouterr().out)["op_types"]
    assert sum(row["num_ops"] for row in rows if row["op_type"] == "AddV2") == num_adds


def test_all_meta_graphs_are_emitted(model, tmp_path):
    source = load(model, TWICE)
    flat = flatten(source.graph_def, source.feeds, source.fetches)
    devices = dict.fromkeys(flat.origins, "/device:CPU:1")
    assert Origin("", "z") in devices and not emit(source, devices, tmp_path, {})
    config = v1.ConfigProto(device_count={"CPU": 2})
    for tags, fetch, value in ((["serve"], "y:0", 4.0), (["serve", "twice"], "z:0", 8.0)):
        with tf.Graph().as_default() as graph, v1.Session(config=config) as session:
            v1.saved_model.load(session, tags, str(tmp_path))
            assert session.run(fetch, {"x:0": X}).tolist() == [[value] * 3] * 2
            assert graph.get_tensor_by_name(fetch).op.device.endswith("CPU:1")


def test_the_emitted_run_is_that_of_the_chosen_meta_graph(model):
    source = load(model, TWICE)
    assert set(proof._emitted_tags(source)) == {"serve", "twice"}
    assert proof._ends_of_emitted(source, {"x:0": X}) == ({"x:0": X}, ("z:0",))


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--tags=train", "found MetaGraphDefs with the tags {serve} {serve,twice}, wanted {train}"),
        ("--tags=twice", "wanted {twice}; name one with --tags=A,B"),
    ],
)
def test_tags_that_no_meta_graph_has_are_told(model, capsys, flag, message):
    assert _inspect(model, flag) == 2
    assert message in capsys.readouterr().err


def test_a_graph_def_has_no_tags(tmp_path, capsys):
    graph = v1.GraphDef()
    graph.node.add(name="a", op="NoOp")
    (tmp_path / "graph.pb").write_bytes(graph.SerializeToString())
    assert _inspect(str(tmp_path / "graph.pb"), "--tags=serve") == 2
    assert "has no tags to choose by; leave --tags out" in capsys.readouterr().err
