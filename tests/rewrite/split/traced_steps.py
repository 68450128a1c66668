"""Training steps that a tf.function traced, as graphs whose variables are in them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from graphs import zoo
from graphs.building.flatten import flatten
from graphs.building.shapes import infer
from graphs.flat_graph import FlatGraph
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from graphs.source_model import TensorSpec
from rewrite.split.batch_norm.decompose import decompose_norms
from rewrite.split.decide.decide import decide

STEPS, FEATURES, UNITS = 3, 2, 2


def keras_step(keras: Any, layers: list[Any], batch: int | None, fed: int) -> FlatGraph:
    """A training step of a model of sequences, traced for this batch size, fed that one."""
    model = keras.Sequential(
        [keras.Input((STEPS, FEATURES), batch_size=batch), *layers, keras.layers.Dense(1)]
    )
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    specs = [
        tf.TensorSpec((batch, STEPS, FEATURES), tf.float32, "x"),
        tf.TensorSpec((batch, 1), tf.float32, "y"),
    ]
    return flat_step(step, specs, fed)


def flat_step(
    function: Any, specs: list[Any], fed: int, open_conditionals: bool = True
) -> FlatGraph:
    """The opened graph of a function, its unknown dimensions fed as `fed`.

    A step is split before its conditionals are opened: some tests want them closed.
    """
    concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    feeds = [
        TensorSpec(
            tensor.name,
            tensor.dtype.name,
            tuple(fed if size is None else size for size in tensor.shape),
        )
        for tensor in concrete.inputs[: len(specs)]
    ]
    outputs = [tensor.name for tensor in concrete.outputs]
    effects = [op.name for op in concrete.graph.control_outputs]
    return flatten(_with_variables(concrete), feeds, outputs + effects, open_conditionals)


def _with_variables(concrete: Any) -> Any:
    """The graph, with a VarHandleOp in the place of each variable that it captures."""
    graph_def = concrete.graph.as_graph_def()
    variables = {id(v.handle): v for v in concrete.graph.variables}
    captured = {inner.op.name: outer for outer, inner in concrete.graph.captures}
    for node in graph_def.node:
        if node.name not in captured:
            continue
        outer, name = captured[node.name], node.name
        node.Clear()
        node.name = name
        if id(outer) in variables:
            variable = variables[id(outer)]
            node.op = "VarHandleOp"
            node.attr["dtype"].type = variable.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
            node.attr["shared_name"].s = name.encode()
        else:
            node.op = "Const"
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(outer.numpy()))
            node.attr["dtype"].type = outer.dtype.as_datatype_enum
    return graph_def


def step_of_zoo(name, batch_size, folder):
    """(step, properties, decisions) of a tiny benchmark graph with its first batch axis split."""
    path = str(folder / "model.pb")
    zoo.write(zoo.build(name, size="tiny", batch_size=batch_size), path)
    source = load(path, LoadOptions())
    flat = flatten(source.graph_def, source.feeds, source.fetches)
    axes = {
        f"{spec.tensor.partition(':')[0]}:0": spec.shape.index(batch_size)
        for spec in flat.feeds
        if spec.shape and batch_size in spec.shape
    }
    flat, properties = decompose_norms(flat, infer(flat), batch_size, axes)
    return flat, properties, decide(flat, properties, batch_size, axes)
