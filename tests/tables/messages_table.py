"""What two workers send each other in a split step: predicted beside traced, message by message.

    python -m tests.tables.messages_table MODEL --steps=20

The step is split for `workers:2`, placed as plain data parallelism and run with its calls opened:
TensorFlow puts NoOps of its own before and behind a call. With --steps, it is timed beside the
unsplit step on one worker.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from graphs.building.executed_controls import step_end, without_implied
from graphs.errors import ModelError
from graphs.op_graph import IntArray
from graphs.problem import Infeasible
from tests.tables.messages import Messages, fullest, predicted_messages, traced_messages
from tfplace.algorithms.placers.data_parallel import data_parallel
from tfplace.measurement.run_measurement import measure_variants
from tfplace.measurement.timing import summarize
from tfplace.measurement.trace import trace_run
from tfplace.measurement.training_run import exactly
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel, prepare

NUM_WORKERS = 2
NUM_TRACES = 3


def messages_of(prepared: PreparedModel, device_of_op: IntArray) -> tuple[Messages, Messages]:
    """{message: how many tensors} of a split step's placement i4[N], predicted and traced.

    Raises:
      ModelError: the step can't be run.
    """
    problem = prepared.problem
    end = step_end(without_implied(prepared.built.graph))
    traces = trace_run(
        prepared.opened_on(device_of_op),
        prepared.opened_run(),
        prepared.cluster,
        exactly(NUM_TRACES, warmup_steps=1),
    )
    if isinstance(traces, Infeasible):
        raise ModelError(f"tracing the split step: {traces.message}")
    names = [problem.graph.op_names[op] for op in end.ops]
    return (
        predicted_messages(problem.graph, end, device_of_op, problem.device_names),
        traced_messages(fullest(traces), names),
    )


def main(argv: Sequence[str]) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, default=0)
    arguments = parser.parse_args(argv)
    whole, split = (
        prepare(
            ProblemOptions(arguments.model, cluster=f"workers:{NUM_WORKERS}", num_shards=shards),
            trace=False,
        )
        for shards in (1, NUM_WORKERS)
    )
    placement = data_parallel(split.problem)
    predicted, traced = messages_of(split, placement)
    for message in sorted(predicted | traced):
        print(f"{predicted[message]:4} {traced[message]:4}  {message.device} {message.op}")
    print(f"{predicted.total()} predicted, {traced.total()} traced")
    print(f"missing {(predicted - traced).total()}, others {(traced - predicted).total()}")
    if arguments.steps:
        _time(whole, split, placement, arguments.steps)


def _time(whole: PreparedModel, split: PreparedModel, placement: IntArray, steps: int) -> None:
    one = np.zeros(whole.problem.num_ops, np.int32)
    results = measure_variants(
        {"one worker": whole.placed_run_graph(one), "split": split.placed_run_graph(placement)},
        {"one worker": whole.training_run(), "split": split.training_run()},
        split.cluster,
        exactly(steps, warmup_steps=3),
    )
    for name, result in results.items():
        print(name, result.message if isinstance(result, Infeasible) else "", end=" ")
        print("" if isinstance(result, Infeasible) else summarize(result.step_seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
