"""A step split for two hosts, all the way: placed, written, proven, loaded; it trains as before."""

import json

import numpy as np
import pytest
import tensorflow as tf

from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.named_clusters import named
from graphs.names import RELAY
from rewrite.emit import emit
from rewrite.split.prove.written.prove_written import prove_written
from tfplace.algorithms.placers.data_parallel import data_parallel
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare

WIDTH, BATCH = 100, 8


class Layers(tf.Module):
    """Two layers whose weights are large enough that it matters how often they are sent."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.weights = [
            tf.Variable(rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) * 0.1) for _ in range(2)
        ]

    def train_step(self, x):
        """One step of gradient descent."""
        with tf.GradientTape() as tape:
            hidden = x
            for weight in self.weights:
                hidden = tf.tanh(hidden @ weight)
            loss = tf.reduce_mean(tf.square(hidden - x))
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss, "hidden": hidden}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """The model's folder."""
    module, folder = Layers(), str(tmp_path_factory.mktemp("given"))
    specs = [tf.TensorSpec([BATCH, WIDTH], tf.float32)]
    step = tf.function(module.train_step, input_signature=specs)
    tf.saved_model.save(module, folder, signatures={"train_step": step})
    return folder


@pytest.fixture(scope="module", params=["none", "edges"])
def prepared(request, given, tmp_path_factory):
    """The step, split for two hosts of two GPUs."""
    cluster = tmp_path_factory.mktemp("cluster") / "two.json"
    link = {"bytes_per_second": 1e9, "latency_seconds": 1e-4}
    value = {**cluster_to_json(named("k80x2")), "name": "two", "hosts": 2, "host_link": link}
    cluster.write_text(json.dumps(value))
    options = ProblemOptions(given, cluster=str(cluster), num_shards=4, order=request.param)
    heard: list = []
    prepared = prepare(options, trace=False, on_split=heard.append)
    assert len(heard) == 1 and heard[0] is prepared.source
    return prepared


def test_each_host_sums_and_hands_on_for_its_shards(prepared):
    problem = prepared.problem
    device = [problem.device_names[d] for d in data_parallel(problem)]
    where = dict(zip(problem.graph.op_names, device, strict=True))
    op_type = dict(zip(problem.graph.op_names, problem.graph.op_types, strict=True))
    sums = [name for name in where if "/summed/shard_" in name]
    assert {op_type[name] for name in sums} == {"AddN"} and len(sums) == 2
    assert {where[name].partition("/device")[0] for name in sums} == {
        "/job:worker/task:0", "/job:worker/task:1",
    }  # fmt: skip
    relays = [name for name in where if RELAY.search(name)]
    assert {op_type[name] for name in relays} == {"Identity"} and len(relays) == 2 * 4


def test_what_is_written_is_proven_and_trains_as_before(prepared, given, tmp_path):
    split = prepared.split
    prove_written(split.source, split.step, split.outputs)
    origin = next(origin for origin in prepared.flat.origins if origin.node)
    emit(split.source, {origin: ""}, tmp_path, {})
    for one, other in zip(_trained(given), _trained(str(tmp_path)), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def _trained(path):
    """Loss, output and variables after two steps."""
    module = tf.saved_model.load(path)
    x = tf.constant(np.random.default_rng(1).normal(size=(BATCH, WIDTH)), tf.float32)
    for _ in range(2):
        found = module.signatures["train_step"](x=x)
    return [found["loss"], found["hidden"], *(weight.numpy() for weight in module.weights)]
