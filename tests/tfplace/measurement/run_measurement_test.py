import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from graphs.cluster import Cluster
from graphs.flat_graph import FlatGraph, Origin
from graphs.function_library import CUT
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.problem import Infeasible, Measurement
from graphs.run_session import starting_values
from graphs.source_model import Initialization
from tests.tfplace.measurement.measure_graphs import (
    INPUT,
    LOGICAL_CPUS,
    WORKERS,
    abort,
    cluster_of,
    loop,
    towers,
    towers_run,
)
from tfplace.measurement.measuring_evaluator import MeasuringEvaluator
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.run_graph import subgraph
from tfplace.measurement.run_measurement import Timings, measure_variants
from tfplace.measurement.training_run import (
    PreparedRun,
    PrepareRequest,
    StepRequest,
    TrainingRun,
    exactly,
)

v1 = tf.compat.v1

WAYS = pytest.mark.parametrize("through", ["tf.function", "session"])
BRIEF = exactly(3, warmup_steps=1)


@pytest.fixture(scope="module")
def process() -> Iterator[MeasuringProcess]:
    with MeasuringProcess(cluster_of(LOGICAL_CPUS)) as running:
        yield running


def _prepare(process: MeasuringProcess, graph: Any, run: TrainingRun, through: str) -> Any:
    request = PrepareRequest(0, graph.SerializeToString(), run, through)
    return process.request(request, timeout_seconds=100)


@WAYS
@pytest.mark.parametrize("use_resource", [True, False])
def test_both_kinds_of_variable_train(
    process: MeasuringProcess, through: str, use_resource: bool
) -> None:
    graph = towers(LOGICAL_CPUS, use_resource)
    prepared = _prepare(process, graph, towers_run(), through)
    assert prepared == PreparedRun(through, {"loss:0": 60.0})
    assert process.request(StepRequest(0, 2), 100).shape == (2,)


def test_variants_whose_functions_differ_run_through_tf_function_side_by_side() -> None:
    """A runtime refuses another function of a name that it knows: bodies hold devices, too."""

    @tf.function(input_signature=[tf.TensorSpec([2])])
    def inner(x: Any) -> Any:
        return x + 1.0

    with tf.Graph().as_default() as graph:
        total = inner(inner(tf.constant([1.0, 2.0])))
    variants = {}
    for name, device in zip("ab", LOGICAL_CPUS, strict=True):
        variants[name] = v1.GraphDef.FromString(graph.as_graph_def().SerializeToString())
        for function in variants[name].library.function:
            function.node_def[-1].device = device
    run = TrainingRun({}, [total.name])
    timings = measure_variants(variants, run, cluster_of(LOGICAL_CPUS), BRIEF)
    for timing in timings.values():
        assert isinstance(timing, Timings) and timing.through == "tf.function"
        np.testing.assert_array_equal(timing.first_outputs[total.name], [3.0, 4.0])


@WAYS
def test_an_evaluation_begins_anew(process: MeasuringProcess, through: str) -> None:
    for _ in range(2):
        prepared = _prepare(process, towers(LOGICAL_CPUS), towers_run(), through)
        assert prepared.outputs == {"loss:0": 60.0}


@WAYS
def test_a_run_may_fetch_ops_only(process: MeasuringProcess, through: str) -> None:
    run = dataclasses.replace(towers_run(), fetches=["train"])
    assert _prepare(process, towers(LOGICAL_CPUS), run, through).outputs == {}


@WAYS
def test_a_fetched_op_is_run(process: MeasuringProcess, through: str) -> None:
    with tf.Graph().as_default() as graph:
        v1.Assert(tf.constant(False), ["it ran"], name="check")
    answer = _prepare(process, graph.as_graph_def(), TrainingRun({}, ["check/Assert"]), through)
    assert isinstance(answer, Infeasible)
    assert "it ran" in answer.message


@WAYS
def test_loops_run(process: MeasuringProcess, through: str) -> None:
    run = TrainingRun({"x": INPUT}, ["result:0"])
    prepared = _prepare(process, loop(LOGICAL_CPUS[1], iterations=3), run, through)
    np.testing.assert_array_equal(prepared.outputs["result:0"], 8 * INPUT)


@WAYS
def test_strings_are_fed(process: MeasuringProcess, through: str) -> None:
    with tf.Graph().as_default() as graph:
        v1.strings.length(v1.placeholder(tf.string, [2], name="text"), name="length")
    run = TrainingRun({"text": np.array([b"a", b"bcd"])}, ["length:0"])
    prepared = _prepare(process, graph.as_graph_def(), run, through)
    np.testing.assert_array_equal(prepared.outputs["length:0"], [1, 3])


@WAYS
def test_a_checkpoint_is_restored(process: MeasuringProcess, through: str, tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        variable = v1.get_variable("v", initializer=[1.0, 2.0])
        tf.identity(variable, name="value")
        saver = v1.train.Saver()
        session.run(variable.assign([5.0, 6.0]))
        prefix = saver.save(session, str(tmp_path / "model"), write_meta_graph=False)
    saver_def = saver.saver_def
    initialization = Initialization(
        (), saver_def.restore_op_name, saver_def.filename_tensor_name, prefix
    )
    run = TrainingRun({}, ["value:0"], initialization, source_graph=graph.as_graph_def())
    pruned = subgraph(graph.as_graph_def(), ["value"], ())
    prepared = _prepare(process, pruned, run, through)
    np.testing.assert_array_equal(prepared.outputs["value:0"], [5.0, 6.0])


@WAYS
def test_what_tensorflow_2_saved_starts_with_its_own_values(
    process: MeasuringProcess, through: str, tmp_path: Path
) -> None:
    """The state of a seed is saved under another object than the one that the step uses."""
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dropout(0.5)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    path = tmp_path / "model.keras"
    model.save(path)
    source = load(path, LoadOptions(batch_size=2))
    feeds = {spec.tensor: np.ones(spec.shape or (), np.float32) for spec in source.feeds}
    run = TrainingRun(feeds, source.fetches, source.initialization)
    prepared = _prepare(process, source.graph_def, run, through)
    expected = tf.saved_model.load(source.saved_model_dir).signatures["train_step"]
    inputs = expected.structured_input_signature[1]
    loss = expected(**{name: tf.ones([2, s.shape[1]]) for name, s in inputs.items()})["loss"]
    np.testing.assert_allclose(prepared.outputs[source.fetches[0]], loss, rtol=1e-6)


@WAYS
@pytest.mark.parametrize("use_resource", [True, False])
def test_variables_that_nothing_initialises_get_small_values(
    process: MeasuringProcess, through: str, use_resource: bool
) -> None:
    graph = towers(LOGICAL_CPUS, use_resource)
    run = TrainingRun({"x": INPUT}, ["loss:0"], Initialization(random_variables=["v0", "v1"]))
    loss = _prepare(process, graph, run, through).outputs["loss:0"]
    assert 0 < abs(loss) < 1
    other = "session" if through == "tf.function" else "tf.function"
    np.testing.assert_allclose(_prepare(process, graph, run, other).outputs["loss:0"], loss)


@WAYS
def test_pieces_of_a_variable_get_their_values_themselves(
    process: MeasuringProcess, through: str
) -> None:
    """Whole it may be too large for every device, and is empty while pieces have its values."""
    made = {"dtype": tf.float32, "shape": [4, 24]}

    @tf.function(input_signature=[tf.TensorSpec([], tf.resource)])
    def step(whole: Any) -> Any:
        part = {**made, "shape": [4, 2]}
        names = [f"tfplace/key/w/shard_{number}" for number in range(12)]
        pieces = [tf.raw_ops.VarHandleOp(**part, shared_name=name) for name in names]
        read = [tf.raw_ops.ReadVariableOp(resource=each, dtype=tf.float32) for each in pieces]
        return tf.raw_ops.VariableShape(input=whole), tf.concat(read, 1)

    with tf.Graph().as_default() as graph:
        shape, joined = step(tf.raw_ops.VarHandleOp(**made, shared_name="w", name="w"))
    graph_def = graph.as_graph_def()
    for function in graph_def.library.function:
        for node in function.node_def:
            if node.op == "VarHandleOp":
                node.attr[CUT].list.i.extend([1, 1])
    unknown = Initialization(random_variables=["w"])
    run = TrainingRun({}, [shape.name, joined.name], unknown)
    prepared = _prepare(process, graph_def, run, through)
    assert isinstance(prepared, PreparedRun), prepared
    outputs = prepared.outputs
    value = starting_values(unknown, {"w": (tf.float32, made["shape"])})["w"]
    assert 0 in outputs[shape.name]
    np.testing.assert_array_equal(outputs[joined.name], value)


@WAYS
def test_a_device_without_kernel_is_a_value(process: MeasuringProcess, through: str) -> None:
    answer = _prepare(process, towers([LOGICAL_CPUS[0], "/device:GPU:0"]), towers_run(), through)
    assert isinstance(answer, Infeasible)
    assert answer.reason == "no_kernel"
    assert process.alive


def test_an_uninitialised_variable_is_an_error_told_of_the_session(
    process: MeasuringProcess,
) -> None:
    run = TrainingRun({"x": INPUT}, ["loss:0"])
    answer = _prepare(process, towers(LOGICAL_CPUS), run, "auto")
    assert isinstance(answer, Infeasible)
    assert answer.reason == "error"
    assert "v0" in answer.message or "v1" in answer.message
    assert "\n" not in answer.message and "Detected at" not in answer.message


def test_a_run_that_hangs_is_a_timeout_and_the_next_gets_a_new_child(
    process: MeasuringProcess,
) -> None:
    graph = towers(LOGICAL_CPUS)
    assert isinstance(_prepare(process, graph, towers_run(), "auto"), PreparedRun)
    hanging = loop(LOGICAL_CPUS[0], iterations=2**62).SerializeToString()
    request = PrepareRequest(0, hanging, TrainingRun({"x": INPUT}, ["result:0"]))
    answer = process.request(request, timeout_seconds=2.0)
    assert answer == Infeasible("timeout", "no answer within 2 s")
    assert not process.alive
    assert isinstance(_prepare(process, graph, towers_run(), "auto"), PreparedRun)
    assert process.num_starts == 2


def _aborting(devices: Sequence[str], device: str) -> Any:
    """Two towers whose training op ends the process of `device`."""
    graph = towers(devices)
    for node in graph.node:
        if node.name == "train":
            node.CopyFrom(next(other for other in abort().node if other.name == "train"))
            node.device = device
    return graph


def test_variants_fail_alone() -> None:
    """One ends its process and one asks for what is not there; the others are timed."""
    variants = {
        "aborting": _aborting(LOGICAL_CPUS, LOGICAL_CPUS[0]),
        "single": towers([LOGICAL_CPUS[0]] * 2),
        "absent": towers([LOGICAL_CPUS[0], "/device:GPU:7"]),
        "placed": towers(LOGICAL_CPUS),
    }
    results = measure_variants(variants, towers_run(), cluster_of(LOGICAL_CPUS), BRIEF)
    reasons = {n: r.reason for n, r in results.items() if isinstance(r, Infeasible)}
    assert reasons == {"aborting": "crash", "absent": "no_kernel"}
    for name in ("single", "placed"):
        timings = results[name]
        assert isinstance(timings, Timings)
        assert timings.step_seconds.shape == (3,)
        assert (timings.step_seconds > 0).all()
        assert (timings.through, timings.interleaved) == ("tf.function", True)
        assert timings.first_outputs == {"loss:0": 60.0}


def test_worker_processes_give_the_same_values_and_a_lost_one_is_a_crash() -> None:
    variants = {
        "lost": _aborting(WORKERS, WORKERS[1]),
        "single": towers([WORKERS[0]] * 2),
        "placed": towers(WORKERS),
    }
    results = measure_variants(variants, towers_run(), cluster_of(WORKERS), BRIEF)
    lost = results.pop("lost")
    assert isinstance(lost, Infeasible)
    assert lost.reason == "crash"
    for timings in results.values():
        assert isinstance(timings, Timings)
        assert timings.first_outputs == {"loss:0": 60.0}
        assert timings.through == "tf.function"


def _flat(graph_def: Any, fetches: list[str]) -> FlatGraph:
    pruned = subgraph(graph_def, fetches, ())
    origins = [Origin("", node.name) for node in pruned.node]
    return FlatGraph(pruned, origins, (), fetches, {}, {})


def test_the_evaluator_measures_placements_as_they_come() -> None:
    source = towers(["", ""])
    run = dataclasses.replace(towers_run(), source_graph=source)
    flat = _flat(source, ["loss:0", "train"])
    cluster = cluster_of([*LOGICAL_CPUS, "/device:GPU:0"])
    op_names = [node.name for node in flat.graph_def.node]
    op_of_node = np.arange(len(op_names), dtype=np.int32)
    placements = np.zeros((4, len(op_names)), np.int32)
    for op, name in enumerate(op_names):
        if "1" in name:
            placements[:, op] = [0, 1, 2, 1]
    with MeasuringEvaluator(flat, op_of_node, run, cluster, BRIEF) as evaluator:
        first, second, third, fourth = evaluator.evaluate(placements)
    for outcome in (first, second, fourth):
        assert isinstance(outcome, Measurement)
        assert outcome.step_seconds > 0
        assert (outcome.peak_bytes, outcome.source) == ((), "measured")
    assert isinstance(third, Infeasible)
    assert third.reason == "no_kernel"


class _Interrupting:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def poll(self, timeout: float) -> bool:
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_an_interrupt_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    from tfplace.measurement import measuring_process

    children = []

    def start(module: str, environment: Any) -> Any:
        child = start_child(module, environment=environment)
        children.append(child)
        return dataclasses.replace(child, connection=_Interrupting(child.connection))

    start_child = measuring_process.start_child  # type: ignore[attr-defined]
    monkeypatch.setattr(measuring_process, "start_child", start)
    process = MeasuringProcess(cluster_of(LOGICAL_CPUS))
    with pytest.raises(KeyboardInterrupt):
        process.request(StepRequest(0, 1), timeout_seconds=100)
    assert not process.alive
    assert children[0].process.poll() is not None


def test_a_cluster_is_not_started_before_it_is_needed() -> None:
    cluster: Cluster = cluster_of(WORKERS)
    with MeasuringProcess(cluster) as process:
        assert process.num_starts == 0
        assert not process.alive
