"""Given and emitted models run side by side."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from graphs.errors import ModelError
from graphs.loading.feeds import generate_feeds
from graphs.loading.sniff import sniff
from rewrite.agreement import OutputAgreement
from rewrite.place_graph import place_graph
from rewrite.verify import verify
from rewrite.verify_child import compared
from tests.rewrite.placements import Placed

LOADS = ("tf.saved_model.load", "tf.saved_model.load, variables on their devices")


def _verify(placed: Placed, path: str = "", **more):
    source = placed.source
    feeds = generate_feeds(source.graph_def, source.feeds, source.fetches, 0)
    return verify(source, path or placed.emitted.path, feeds, **more)


def test_tf2_computes_the_same_however_it_is_loaded(tf2):
    verified = _verify(tf2)

    assert (verified.outputs_equal, verified.max_abs_diff) == (True, 0.0)
    assert verified.not_compared == verified.differing == ()
    run = f"the run: {tf2.source.fetches[0]}"
    variables = ("unused", "w", "w_1")
    signatures = (("serving_default", "y", ()), ("train_step", "loss", variables))

    def values(signature, output, changed, how):
        label = f"signature {signature} ({how})"
        yield from (f"{label}: {output} of step {step}" for step in (1, 2))
        yield from (f"{label}: variable {name}" for name in changed if "v1" in how)

    assert list(verified.compared) == [
        *(f"{run} of step {step}" for step in (1, 2)),
        *(f"the run: variable {name}" for name in variables),
        *(
            value
            for signature in signatures
            for how in ("v1 Session", *LOADS)
            for value in values(*signature, how)
        ),
        *(v for s in signatures for v in values(*s, "v1 Session, empty batch")),
    ]


def test_a_graph_trains_through_its_new_signature(graph_def):
    verified = _verify(graph_def)

    assert (verified.outputs_equal, verified.max_abs_diff) == (True, 0.0)
    assert list(verified.compared) == [
        "the run: loss:0 of step 1",
        "the run: loss:0 of step 2",
        "the run: variable w",
        "the run: variable b",
        *(
            f"signature train_step ({how}): loss:0 of step {step}"
            for how in LOADS
            for step in (1, 2)
        ),
    ]


def test_random_outputs_are_listed_and_table_lookups_compared(tf1):
    verified = _verify(tf1)

    assert verified.outputs_equal
    assert "signature serving_default (v1 Session): score" in verified.compared
    random = [name for name, why in verified.not_compared if "between two runs" in why]
    assert "signature serving_default (v1 Session): noise" in random
    assert all("noise" in name for name in random)


def test_a_made_training_step_is_compared_where_its_graph_is_given(keras_layers):
    placed = place_graph(keras_layers.source.graph_def, keras_layers.wanted).graph_def
    verified = _verify(keras_layers, placed_graph_def=placed)
    assert verified.outputs_equal
    label = "the run, with the training step that was made for it"
    assert f"{label}: train_step/loss:0 of step 2" in verified.compared
    variables = [name for name in verified.compared if name.startswith(f"{label}: variable dense")]
    assert {name.rpartition("/")[2] for name in variables} == {"kernel", "bias"}


def test_a_changed_model_is_found_out(tf2, tmp_path):
    """Each tanh of the emitted model became a sigmoid, and one signature is gone."""
    wrong = tmp_path / "wrong"
    shutil.copytree(tf2.emitted.path, wrong)
    saved_model = sniff(wrong).proto
    for function in saved_model.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "Tanh":
                node.op = "Sigmoid"
    del saved_model.meta_graphs[0].signature_def["serving_default"]
    (wrong / "saved_model.pb").write_bytes(saved_model.SerializeToString())

    verified = _verify(tf2, str(wrong))

    assert not verified.outputs_equal
    assert verified.max_abs_diff > 0.01
    differing = dict(verified.differing)
    assert "differs by" in differing[f"the run: {tf2.source.fetches[0]} of step 1"]
    assert differing["signature serving_default (v1 Session)"] == (
        "only the emitted model fails: it has no signature 'serving_default', but "
        "__saved_model_init_op, train_step"
    )


def test_a_damaged_original_is_an_error(tf2, tmp_path):
    """A number of the original's variables was changed: their checksum says so."""
    damaged = tmp_path / "damaged"
    shutil.copytree(tf2.source.saved_model_dir, damaged)
    data = next((damaged / "variables").glob("*.data-*"))
    content = bytearray(data.read_bytes())
    content[0] ^= 255
    data.write_bytes(content)
    source = dataclasses.replace(tf2.source, saved_model_dir=str(damaged))
    feeds = generate_feeds(source.graph_def, source.feeds, source.fetches, 0)
    with pytest.raises(ModelError, match=r"its variables are damaged .*copy the whole model again"):
        verify(source, tf2.emitted.path, feeds)


def test_devices_of_other_tasks_need_a_cluster(tf2, tmp_path):
    remote = tmp_path / "remote"
    shutil.copytree(tf2.emitted.path, remote)
    saved_model = sniff(remote).proto
    saved_model.meta_graphs[0].graph_def.node[0].device = "/job:worker/task:1/device:CPU:0"
    (remote / "saved_model.pb").write_bytes(saved_model.SerializeToString())

    verified = _verify(tf2, str(remote))

    assert not verified.outputs_equal
    assert verified.compared == ()
    assert [name for name, _ in verified.not_compared] == [
        "the run",
        "signature serving_default",
        "signature train_step",
    ]


def test_a_crash_of_the_emitted_model_is_its_fault(tf2, monkeypatch):
    """The child dies in the second check while it runs the emitted model."""
    from rewrite import verify as module
    from rewrite.child_process import ChildError

    asked = []

    def run_child(name, request, timeout):
        asked.append([check["label"] for check in request["checks"]])
        if len(asked) == 1:
            done = {"label": asked[0][0], "values": []}
            partial = {"outcomes": [done], "running": "placed"}
            raise ChildError("it was killed by SIGABRT: oops", partial)
        values = [{"name": "y", "why": "", "equal": True, "max_abs_diff": 0.0}]
        return {"outcomes": [{"label": label, "values": values} for label in asked[1]]}

    monkeypatch.setattr(module, "run_child", run_child)

    verified = _verify(tf2)

    assert asked[1] == asked[0][2:]
    assert not verified.outputs_equal
    assert verified.differing == (
        (asked[0][1], "only the emitted model fails: it was killed by SIGABRT: oops"),
    )


def test_a_check_is_not_blamed_for_the_time_of_others(tf2, monkeypatch):
    from rewrite import verify as module
    from rewrite.child_process import ChildError

    asked = []

    def run_child(name, request, timeout):
        labels = [check["label"] for check in request["checks"]]
        asked.append(labels)
        values = [{"name": "y", "why": "", "equal": True, "max_abs_diff": 0.0}]
        outcomes = [{"label": label, "values": values} for label in labels]
        if len(asked) == 1:
            partial = {"outcomes": outcomes[:2], "running": "placed"}
            raise ChildError("it took more than 600 s", partial, is_timeout=True)
        return {"outcomes": outcomes}

    monkeypatch.setattr(module, "run_child", run_child)

    verified = _verify(tf2)

    assert asked[1] == asked[0][2:]
    assert verified.outputs_equal and not verified.differing
    assert len(verified.compared) == len(asked[0])


def test_what_changes_from_run_to_run_is_not_compared():
    first, second = {"a": np.float32([1.0])}, {"a": np.float32([2.0])}
    [value] = compared(first, second, first, OutputAgreement(1e-5))
    assert value["why"] == "it differs between two runs of the model as it came"
    assert json.dumps(value)


def test_reports_are_written_beside_the_model(tf2):
    assert Path(tf2.emitted.path, "assets.extra/tfplace/report.json").read_bytes() == b"{}"
