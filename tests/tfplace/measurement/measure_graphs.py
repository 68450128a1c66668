"""Small runs with known results, placed over two devices."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graphs.cluster import Cluster, Device
from graphs.source_model import Initialization
from tfplace.measurement.training_run import TrainingRun

v1 = tf.compat.v1

LOGICAL_CPUS = ("/device:CPU:0", "/device:CPU:1")
WORKERS = tuple(f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2))
INPUT = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def cluster_of(names: Sequence[str]) -> Cluster:
    size = len(names)
    devices = [Device(name, "CPU", 1 << 30) for name in names]
    return Cluster("test", "duplex", devices, np.zeros((size, size)), np.ones((size, size)))


def towers(devices: Sequence[str], use_resource: bool = True) -> Any:
    """Two towers, x·1 and x·2, each sums its product; a step adds 1 to each variable.

    The first loss on INPUT: each entry of x·c (2 by 2, all entries c) is c times a row's sum,
    twice: 2·(3+7)·1 + 2·(3+7)·2 = 60.
    """
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 2], name="x")
        sums, updates = [], []
        for tower in range(2):
            with tf.device(devices[tower]):
                variable = v1.get_variable(
                    f"v{tower}",
                    [2, 2],
                    initializer=v1.constant_initializer(tower + 1.0),
                    use_resource=use_resource,
                )
                product = tf.matmul(x, variable, name=f"product{tower}")
                sums.append(tf.reduce_sum(product, name=f"sum{tower}"))
                with tf.control_dependencies([product]):
                    one = tf.constant(1.0, shape=[2, 2])
                    updates.append(v1.assign_add(variable, one, name=f"update{tower}").op)
        with tf.device(devices[0]):
            tf.add(*sums, name="loss")
            tf.group(*updates, name="train")
        v1.global_variables_initializer()
    return graph.as_graph_def()


def towers_run() -> TrainingRun:
    return TrainingRun({"x:0": INPUT}, ["loss:0", "train"], Initialization(init_ops=["init"]))


def loop(device: str, iterations: int) -> Any:
    """Doubles x `iterations` times in a While on `device`, whose body asks for no device."""
    with tf.Graph().as_default() as graph:
        v1.enable_control_flow_v2()
        x = v1.placeholder(tf.float32, [2, 2], name="x")
        result = tf.while_loop(
            lambda i, _: i < iterations,
            lambda i, y: (i + 1, tf.add(y, y, name="double")),
            [tf.constant(0, tf.int64), x],
            name="loop",
        )[1]
        tf.identity(result, name="result")
    graph_def = graph.as_graph_def()
    for node in graph_def.node:
        node.device = device
    return graph_def


def abort() -> Any:
    """A graph that ends the process that runs it."""
    with tf.Graph().as_default() as graph:
        tf.raw_ops.Abort(error_msg="asked to abort", name="train")
        tf.constant(0.0, name="loss")
    return graph.as_graph_def()
