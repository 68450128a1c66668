"""Two independent towers of matrix products on one worker process and on two, timed.

By hand, on a machine with two idle cores: python -m tests.tfplace.measurement.towers_demonstration
Twice as fast is the most that is possible; the input goes to the second worker in each step.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graphs.problem import Infeasible
from graphs.source_model import Initialization
from tests.tfplace.measurement.measure_graphs import WORKERS, cluster_of
from tfplace.measurement.run_measurement import measure_variants
from tfplace.measurement.timing import speedup, summarize
from tfplace.measurement.training_run import StepLimits, TrainingRun

v1 = tf.compat.v1


def product_towers(devices: Sequence[str], width: int, depth: int) -> Any:
    """Each tower multiplies x `depth` times by its variable and adds the product to it."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [width, width], name="x")
        sums, updates = [], []
        for tower, device in enumerate(devices):
            with tf.device(device):
                initial = v1.random_normal_initializer(stddev=0.1 / width, seed=tower)
                variable = v1.get_variable(f"v{tower}", [width, width], initializer=initial)
                product = x
                for _ in range(depth):
                    product = tf.matmul(product, variable)
                updates.append(v1.assign_add(variable, product))
                sums.append(tf.reduce_sum(product))
        with tf.device(devices[0]):
            tf.add_n(sums, name="loss")
            tf.group(*updates, name="train")
        v1.global_variables_initializer()
    return graph.as_graph_def()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    value = np.random.default_rng(0).random((args.width, args.width), np.float32)
    run = TrainingRun({"x:0": value}, ["loss:0", "train"], Initialization(init_ops=["init"]))
    variants = {
        "one": product_towers([WORKERS[0]] * 2, args.width, args.depth),
        "two": product_towers(WORKERS, args.width, args.depth),
    }
    for _ in range(args.rounds):
        limits = StepLimits(max_steps=40, budget_seconds=15.0)
        results = measure_variants(variants, run, cluster_of(WORKERS), limits)
        seconds = []
        for name, result in results.items():
            if isinstance(result, Infeasible):
                raise SystemExit(f"{name}: {result.message}")
            print(name, summarize(result.step_seconds), result.first_outputs)
            seconds.append(result.step_seconds)
        print(speedup(seconds[0], seconds[1], seed=0))


if __name__ == "__main__":
    main()
