"""--tags: which MetaGraphDef of a SavedModel is placed; all of them are emitted."""

import json

import numpy as np
import pytest
import tensorflow as tf

from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from tests.graphs.loading.model_files import write_saved_model_v1
from tfplace.choosing import proof
from tfplace.cli import main

v1 = tf.compat.v1
X = np.ones((2, 4), np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tags") / "model"
    write_saved_model_v1(path, ("serve",), ("serve", "twice"))
    return str(path)


def _optimize(model, out, *flags):
    words = ["optimize", model, f"--output_dir={out}", "--cluster=k80x2", "--mode=inference"]
    words += ["--algorithm=random", "--max_trials=4", "--batch_size=2", "--verbosity=-1"]
    return main([*words, *flags])


def _value(path, tags, fetch):
    config = v1.ConfigProto(allow_soft_placement=True)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        v1.saved_model.load(session, tags, path)
        return session.run(fetch, {"x:0": X}).tolist()


def test_the_chosen_meta_graph_is_placed_and_both_are_emitted(model, tmp_path):
    out = tmp_path / "out"
    assert _optimize(model, out, "--tags= serve, twice") == 0
    report = json.loads((out / "assets.extra/tfplace/report.json").read_text())
    assert report["verified"]["outputs_equal"]
    placement = json.loads((out / "assets.extra/tfplace/placement.json").read_text())
    assert "z" in placement
    assert _value(str(out), ["serve"], "y:0") == [[4.0] * 3] * 2
    assert _value(str(out), ["serve", "twice"], "z:0") == [[8.0] * 3] * 2


def test_without_tags_the_one_for_serving_is_placed(model, tmp_path):
    out = tmp_path / "out"
    assert _optimize(model, out) == 0
    assert "z" not in json.loads((out / "assets.extra/tfplace/placement.json").read_text())


def test_the_emitted_run_is_that_of_the_chosen_meta_graph(model, tmp_path):
    source = load(model, LoadOptions(tags=("serve", "twice"), mode="inference", batch_size=2))
    run = proof._emitted_run(source, tmp_path, {"x:0": X})
    assert (set(run.tags), run.fetches) == ({"serve", "twice"}, ("z:0",))


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--tags=train", "found MetaGraphDefs with the tags {serve} {serve,twice}, wanted {train}"),
        ("--tags=twice", "wanted {twice}; name one with --tags=A,B"),
    ],
)
def test_tags_that_no_meta_graph_has_are_told(model, tmp_path, capsys, flag, message):
    assert _optimize(model, tmp_path / "out", flag) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_graph_def_has_no_tags(tmp_path, capsys):
    graph = v1.GraphDef()
    graph.node.add(name="a", op="NoOp")
    (tmp_path / "graph.pb").write_bytes(graph.SerializeToString())
    assert _optimize(str(tmp_path / "graph.pb"), tmp_path / "out", "--tags=serve") == 2
    assert "has no tags to choose by; leave --tags out" in capsys.readouterr().err
