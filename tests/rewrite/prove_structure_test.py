"""What lies on disk is the model as it came but for its devices; any other change is found."""

from __future__ import annotations

import os
import random
import shutil

import pytest

from graphs.loading.sniff import sniff
from rewrite import prove_structure as proving
from rewrite.pass_base import RewriteError
from rewrite.prove_structure import prove_structure
from tests.rewrite.mutations import mutations

KINDS = ["tf2", "tf1", "keras_layers", "graph_def", "meta_graph"]
NUM_MUTATIONS = 100


@pytest.fixture(scope="module", params=KINDS)
def placed(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def rebuilt_once(placed, monkeypatch):
    """Makes the SavedModel of a graph once for all proofs: each takes TensorFlow seconds."""
    if not placed.source.saved_model_dir:
        made = proving._rebuilt(placed.source).SerializeToString()
        kind = type(sniff(placed.path).proto)
        monkeypatch.setattr(proving, "_rebuilt", lambda source: kind.FromString(made))


def _copy(placed, folder):
    shutil.copytree(placed.path, folder, copy_function=os.link)
    (folder / "saved_model.pb").unlink()
    return folder / "saved_model.pb"


def test_what_emit_writes_is_proven(placed):
    proof = prove_structure(placed.source, placed.path)
    assert proof.compared[0].endswith(" ops with their edges and attributes")
    assert "collections, saver and assets" in proof.compared


def test_each_of_a_hundred_random_changes_is_found(placed, rebuilt_once, tmp_path):
    path = _copy(placed, tmp_path / "changed")
    emitted = sniff(placed.path).proto
    rng = random.Random(7)
    missed = []
    for _ in range(NUM_MUTATIONS):
        changed = type(emitted).FromString(emitted.SerializeToString())
        kinds = mutations(changed, rng)
        kind = rng.choice(sorted(kinds))
        what, change = rng.choice(kinds[kind])
        change()
        path.write_bytes(changed.SerializeToString(deterministic=True))
        assert changed != emitted, (kind, what)
        try:
            prove_structure(placed.source, path.parent)
            missed.append((kind, what))
        except RewriteError:
            pass
    assert not missed


def test_devices_and_a_copy_called_for_another_are_no_change(tf2, tmp_path):
    path = _copy(tf2, tmp_path / "changed")
    changed = sniff(tf2.path).proto
    for node in changed.meta_graphs[0].graph_def.node:
        node.device = "/device:CPU:7"
    path.write_bytes(changed.SerializeToString())
    prove_structure(tf2.source, path.parent)


def test_a_changed_byte_of_a_variable_is_found(tf2, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(tf2.path, changed)
    data = next((changed / "variables").glob("*.data-*"))
    content = bytearray(data.read_bytes())
    content[0] ^= 1
    data.write_bytes(content)
    with pytest.raises(RewriteError, match=r"the bytes of 'variables/variables\.data-.* differ"):
        prove_structure(tf2.source, changed)


def test_a_missing_asset_is_found(tf1, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(tf1.path, changed)
    (changed / "assets/vocabulary.txt").unlink()
    with pytest.raises(RewriteError, match=r"only the model as it came has 'assets/vocabulary"):
        prove_structure(tf1.source, changed)


def test_a_changed_graph_file_is_found(graph_def, rebuilt_graph, tmp_path):
    changed = tmp_path / "changed"
    shutil.copytree(graph_def.path, changed)
    file = changed / "assets.extra/tfplace/graph.pb"
    graph = sniff(file).proto
    graph.node[3].name += "x"
    file.write_bytes(graph.SerializeToString())
    with pytest.raises(RewriteError, match="more than its device changed"):
        prove_structure(graph_def.source, changed)


@pytest.fixture
def rebuilt_graph(graph_def, monkeypatch):
    cleared = proving._rebuilt(graph_def.source)
    monkeypatch.setattr(proving, "_rebuilt", lambda source: cleared)
