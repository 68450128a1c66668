"""Draws the schedules of parallelism.md: `python -m tests.tables.draw_schedules`, a minute or so.

One training step of a small transformer on four simulated K80s, split into four shards, in several
placements: by hand as data parallelism and as a pipeline, and as `optimize` finds one. Colours are
the shards', grey is what is whole.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from graphs import zoo
from graphs.op_graph import IntArray
from graphs.problem import Problem
from tests.tables.rewrite_docs import DOCS
from tfplace.algorithms.placers.data_parallel import data_parallel
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.choosing.scheduling.list_schedules import ordered
from tfplace.grouping.copies import shard_of_op
from tfplace.optimizing import optimize
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.report.explaining.parallelism import parallelism_of, parallelism_text
from tfplace.report.explaining.waiting import short_names
from tfplace.simulation.simulated import Simulated, simulated
from tfplace.units_text import seconds_text

MODEL = {"batch_size": 32, "hidden_size": 512, "num_layers": 4, "num_steps": 64,
         "vocab_size": 2000, "num_masked": 10}  # fmt: skip
CLUSTER, SHARDS = "k80x4", 4
# Colours that colour-blind people tell apart (Okabe and Ito), and grey for what is whole.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#b5b5b5")
MAX_WIDTH = 80
STAGES = (r"embedding|layer_0\b", r"layer_1\b", r"layer_2\b", r"layer_3\b|head|loss")
"""What stands in the names of each stage's ops."""


def main() -> None:
    """Writes one PNG for each placement into the pictures' folder, or into --output_dir."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--output_dir", type=Path, default=DOCS / "pictures")
    parser.add_argument("--budget_seconds", type=float, default=20.0, help="of the search")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder, "transformer.pb"))
        zoo.write(zoo.build("transformer", "tiny", **MODEL), model)
        one_gpu = simulated(
            (whole := prepare(ProblemOptions(model, cluster=CLUSTER), trace=False)).problem,
            np.full(whole.problem.num_ops, working_devices(whole.problem)[0], np.int32),
        ).outcome.step_seconds
        split = ProblemOptions(model, cluster=CLUSTER, num_shards=SHARDS)
        prepared = prepare(split, trace=False)
        placements = {
            "data_parallel": data_parallel(prepared.problem),
            "pipeline": pipeline(prepared.problem),
            "found": found(prepared, split, folder, options.budget_seconds),
        }
    steps = {name: simulated(prepared.problem, placed) for name, placed in placements.items()}
    steps["pipeline_in_order"] = in_order(steps["pipeline"])
    for name, step in steps.items():
        order = ", with control edges" if name.endswith("in_order") else ""
        figure = drawn(step, one_gpu, order)
        figure.savefig(options.output_dir / f"schedule_{name}.png")


def in_order(placed: Simulated) -> Simulated:
    """The same placement with the control edges that fix the best order found."""
    best = ordered(placed.problem, placed.device_of_op)
    edged = best.edged()
    return simulated(edged.problem, edged.renumbered(placed.device_of_op))


def pipeline(problem: Problem) -> IntArray:
    """i4[N]: each layer with its gradients and updates on a GPU of its own, for all shards.

    What no layer's name stands in lies where its first input does.
    """
    graph, devices = problem.graph, working_devices(problem)
    wanted = np.full(problem.num_ops, -1, np.int32)
    for op, name in enumerate(graph.op_names):
        for stage, pattern in enumerate(STAGES):
            if re.search(pattern, name):
                wanted[op] = devices[stage]
    source = graph.tensor_producer[graph.use_tensor]
    for use in np.argsort(graph.use_op, kind="stable").tolist():
        if wanted[graph.use_op[use]] < 0:
            wanted[graph.use_op[use]] = wanted[source[use]]
    wanted[wanted < 0] = devices[0]
    return legal(problem, wanted)


def found(prepared: PreparedModel, split: ProblemOptions, folder: str, seconds: float) -> IntArray:
    """i4[N]: the placement that `tfplace optimize` finds."""
    placed = Path(folder, "placed")
    optimize(
        OptimizeOptions(
            split,
            output_dir=str(placed),
            evaluator="simulate",
            budget_seconds=seconds,
            verify="structure",
        )
    )
    return prepared.placement_in(str(placed / "assets.extra" / "tfplace" / "placement.json"))


def drawn(placed: Simulated, one_gpu: float, order: str = "") -> Figure:
    """A row for each GPU, with its ops in their shards' colours."""
    problem, schedule = placed.problem, placed.known_schedule()
    figure = Figure(figsize=(9.0, 2.4), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    devices = working_devices(problem).tolist()
    names = short_names(problem.device_names)
    shard = shard_of_op(problem)
    for row, device in enumerate(devices):
        for number in range(-1, SHARDS):
            here = (schedule.device_of_op == device) & (shard == number)
            spans = np.stack([schedule.op_start[here], schedule.op_end[here]], axis=1)
            bars = [(start / one_gpu, (end - start) / one_gpu) for start, end in spans.tolist()]
            axes.broken_barh(bars, (row - 0.4, 0.8), color=COLOURS[number], linewidth=0)
    axes.set_yticks(range(len(devices)), [names[device] for device in devices])
    axes.invert_yaxis()
    step = schedule.makespan
    axes.set(xlim=(0.0, max(1.0, step / one_gpu)), xlabel="time, as a share of one GPU's step")
    axes.axvline(step / one_gpu, color="#444444", linewidth=0.8)
    kind = parallelism_text(parallelism_of(problem, placed.device_of_op), problem)
    axes.set_title(
        _in_lines(f"{kind}{order}: {seconds_text(step)}, {step / one_gpu:.2f} of one GPU's step")
    )
    labels: Mapping[int, str] = {**{m: f"shard {m}" for m in range(SHARDS)}, -1: "whole"}
    for number, label in labels.items():
        axes.bar(0, 0, color=COLOURS[number], label=label)
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    return figure


def _in_lines(text: str) -> str:
    """In lines that fit the picture, what it takes on one of its own."""
    kind, _, time = text.rpartition(": ")
    return f"{textwrap.fill(kind, MAX_WIDTH)}\n{time}"


if __name__ == "__main__":
    main()
