"""A Keras model's training step in a process of one core: `keras_step MODEL.keras BATCH WAY BYTES`.

WAY is "plain", "grappler" (RECOMPUTATION_HEURISTICS), or "chains" (tf.recompute_grad around each
chain of layers; keras.RematScope does not work in a tf.function, where its custom_gradient takes no
keywords). BYTES is the most that TensorFlow's allocator gives out; 0 for the host's. Prints
{median_seconds, peak_bytes}, or {says} what went wrong.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tfplace.measurement.allocator import Peaks, limit_cpu_memory, take_at_once
from tfplace.measurement.worker import keep_freed_memory

NUM_STEPS = 7
PLAIN, GRAPPLER, CHAINS = "plain", "grappler", "chains"


def main(path: str, batch: str, way: str, num_bytes: str) -> None:
    """Prints the result as JSON."""
    # As a worker of `workers:1` has it, for which the placed step is measured.
    os.environ.update(TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="2")
    os.sched_setaffinity(0, {0})
    keep_freed_memory()
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit_cpu_memory(int(num_bytes) or most)
    import tensorflow as tf

    if way == GRAPPLER:
        config = tf.compat.v1.ConfigProto()
        options = config.graph_options.rewrite_options
        options.memory_optimization = options.RECOMPUTATION_HEURISTICS
        options.memory_optimizer_target_node_name_scope = "gradient_tape/"
        tf.compat.v1.enable_eager_execution(config=config)
    if int(num_bytes):
        take_at_once(int(num_bytes))
    try:
        result = _measured(path, int(batch), way)
    except tf.errors.ResourceExhaustedError as error:
        result = {"says": str(error)}
    print(json.dumps(result))


def _measured(path: str, batch: int, way: str) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    model = keras.models.load_model(path)
    apply = _by_chains(model) if way == CHAINS else lambda x: model(x, training=True)
    rng = np.random.default_rng(0)
    x = tf.constant(rng.standard_normal((batch, *model.input_shape[1:]), dtype=np.float32))
    classes, shape = model.output_shape[-1], (batch, *model.output_shape[1:-1])
    y = tf.constant(rng.integers(0, classes, shape), tf.int32)
    model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, apply(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    peaks = Peaks()
    peaks.of_devices(["/device:CPU:0"], reset=True)  # variables are counted by the first step's
    float(step(x, y))
    float(step(x, y))
    counted = peaks.of_devices(["/device:CPU:0"], reset=False)["/device:CPU:0"].counted
    seconds = []
    for _ in range(NUM_STEPS):
        began = time.perf_counter()
        float(step(x, y))
        seconds.append(time.perf_counter() - began)
    return {"median_seconds": float(np.median(seconds)), "peak_bytes": counted}


def _by_chains(model: Any) -> Callable[[Any], Any]:
    """The model's call, each chain of layers in tf.recompute_grad."""
    import keras
    import tensorflow as tf

    chains: list[tuple[list[Any], list[Any]]] = []  # (inputs, layers)
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    inputs = [layer.input if isinstance(layer.input, list) else [layer.input] for layer in layers]
    readers = Counter(id(tensor) for read in inputs for tensor in read)
    for layer, read in zip(layers, inputs, strict=True):
        last = chains[-1][1][-1].output if chains else None
        if len(read) == 1 and read[0] is last and readers[id(last)] == 1:
            chains[-1][1].append(layer)
        else:
            chains.append((read, [layer]))

    def in_turn(chain: list[Any]) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            value = chain[0](list(values) if len(values) > 1 else values[0])
            for layer in chain[1:]:
                value = layer(value, training=True)
            return value

        return tf.recompute_grad(run)

    def apply(x: Any) -> Any:
        values = {id(model.inputs[0]): x}
        for read, chain in chains:
            made = in_turn(chain)(*(values[id(tensor)] for tensor in read))
            values[id(chain[-1].output)] = made
        return made

    return apply


if __name__ == "__main__":
    main(*sys.argv[1:])
