"""A run traced for real, once; the second time its costs are there."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graphs.building.build import build_op_graph
from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.loading.load import load
from graphs.pricing.costs import Costs, Provenance
from graphs.problem import Infeasible
from rewrite.split.split_model import StepToSplit
from tests.tfplace.measurement.measure_graphs import LOGICAL_CPUS, cluster_of
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing import find_costs as module
from tfplace.preparing.cost_cache import CostCache
from tfplace.preparing.find_costs import find_costs, with_prices_of_whole
from tfplace.preparing.loaded_model import LoadedModel
from tfplace.preparing.node_seconds import TracedNodes

v1 = tf.compat.v1
BRIEF = StepLimits(warmup_steps=1, min_steps=2, max_steps=3, budget_seconds=15.0)
CLUSTER = cluster_of(LOGICAL_CPUS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """relu(x·w + b) and its sum; Grappler fuses the first three ops into one."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [64, 128], name="x")
        w = tf.constant(np.ones((128, 256), np.float32), name="w")
        product = tf.matmul(x, w, name="product")
        sum_ = tf.nn.bias_add(product, tf.constant([1.0] * 256), name="biased")
        tf.reduce_sum(tf.nn.relu(sum_, name="active"), name="loss")
    path = tmp_path_factory.mktemp("model") / "dense.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    source = load(str(path))
    flat = flatten(source.graph_def, source.feeds, source.fetches)
    properties = infer(flat)
    feeds = {"x:0": np.ones((64, 128), np.float32)}
    built = build_op_graph(flat, properties)
    return LoadedModel(source, flat, properties, built, feeds, None, StepToSplit(source), 0.0)


def _never(*_: Any) -> Any:
    raise AssertionError("this was in the cache")


def test_costs_are_found_once(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_SHARE", 1.0)  # other tests may run beside this one
    cache = CostCache(tmp_path)
    first, _ = find_costs(model, CLUSTER, True, cache, BRIEF)
    names = model.built.graph.op_names
    assert first.provenance is not None
    known = dict(zip(names, first.provenance[:, 0].tolist(), strict=True))
    assert known["product"] == Provenance.ABSENT
    assert known["loss"] == Provenance.TRACED
    seconds = dict(zip(names, first.op_seconds[:, 0].tolist(), strict=True))
    assert seconds["product"] > seconds["active"] > 0.0
    np.testing.assert_array_equal(first.op_seconds[:, 0], first.op_seconds[:, 1])
    assert sorted(e.description["kind"] for e in cache.entries()) == ["traced"]
    monkeypatch.setattr(module, "execute", _never)
    again, _ = find_costs(model, CLUSTER, True, cache, BRIEF)
    np.testing.assert_array_equal(again.op_seconds, first.op_seconds)
    assert (again.source, again.notes) == (first.source, first.notes)


def test_a_device_that_can_not_be_traced_is_told(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "execute", lambda *_: Infeasible("crash", "it crashed"))
    found, _ = find_costs(model, CLUSTER, True, CostCache(None), BRIEF)
    assert found.source == "analytic"
    assert "/device:CPU:0 could not be traced: it crashed" in found.notes


def test_a_step_that_would_take_too_long_is_not_begun(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "execute", _never)
    brief = dataclasses.replace(BRIEF, all_seconds=1.0)
    found, timed = find_costs(model, CLUSTER, True, CostCache(None), brief)
    assert found.source == "analytic" and timed is not None and not timed.traced
    assert "it would take about 2 s of the 1 s for that" in found.notes[0]


def test_a_step_in_shards_is_priced_by_the_unsplit_one(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_SHARE", 1.0)
    whole, timed = find_costs(model, CLUSTER, True, CostCache(None), BRIEF)
    assert timed is not None and timed.traced
    monkeypatch.setattr(module, "execute", _never)
    split: Any = object()
    again, known = find_costs(
        dataclasses.replace(model, split=split), CLUSTER, True, CostCache(None), BRIEF, timed
    )
    assert known is timed and again.op_turn is None and again.provenance is not None
    np.testing.assert_allclose(again.op_seconds, whole.op_seconds)
    assert Provenance.TRACED not in again.provenance
    assert "priced by what those of the step as it came took" in again.notes[-1]


def test_without_devices_nothing_is_traced(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "execute", _never)
    found, _ = find_costs(model, CLUSTER, False, CostCache(None), BRIEF)
    assert (found.source, found.provenance) == ("analytic", None)


@pytest.mark.parametrize("change", ["nothing", "feeds", "content"])
def test_another_graph_has_other_costs(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    num_nodes = len(model.flat.graph_def.node)
    seconds, absent = np.ones(num_nodes), np.zeros(num_nodes, dtype=np.bool_)
    traced = TracedNodes(seconds, absent, np.arange(num_nodes), 0.0, 1.0, 3, 0, 0.0)
    traces: list[int] = []
    monkeypatch.setattr(module._Tracer, "_trace", lambda self, d, kind: traces.append(d) or traced)
    cache = CostCache(tmp_path)
    find_costs(model, CLUSTER, True, cache, BRIEF)
    assert traces == [0]
    graph_def = v1.GraphDef.FromString(model.flat.graph_def.SerializeToString())
    feeds = list(model.flat.feeds)
    if change == "content":
        graph_def.node[-1].attr["keep_dims"].b = True
    elif change == "feeds":
        feeds[0] = dataclasses.replace(feeds[0], shape=(32, 128))
    other = dataclasses.replace(model.flat, graph_def=graph_def, feeds=feeds)
    find_costs(dataclasses.replace(model, flat=other), CLUSTER, True, cache, BRIEF)
    assert traces == ([0] if change == "nothing" else [0, 0])


def test_a_copy_without_a_price_takes_its_part_of_the_whole_op():
    whole = Costs(np.array([[8.0, np.inf], [2.0, 4.0]]), "analytic", np.array([True, True]))
    names = ["a/shard_0", "a/shard_1", "b", "a/joined", "c/shard_0"]
    seconds = np.array([[0.1, np.inf], [3.0, np.inf], [2.0, 4.0], [0.1, 0.1], [0.1, 0.1]])
    own = Costs(seconds, "analytic", np.array([False, True, True, False, False]), ("some",))
    found = with_prices_of_whole(own, names, whole, ["a", "b"], 2)
    assert found.op_seconds.tolist() == [[4.0, np.inf], *seconds[1:].tolist()]
    assert found.covered.tolist() == [True, True, True, False, False]
    assert found.notes[1].startswith("of these, 1 copies")
    priced = dataclasses.replace(own, covered=np.ones(5, bool))
    assert with_prices_of_whole(priced, names, whole, ["a", "b"], 2) is priced
