"""Simulated: 8 shards in 4 stages of equal layers, in order and first come, first served."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.builders import Machine
from tests.tfplace.choosing.shards.shards_in_order_test import SIZE, layer_of, training
from tfplace.choosing.scheduling.list_schedules import ordered

STAGES, SHARDS = 4, 8


def made() -> dict[str, Any]:
    """The note, columns and rows of the result."""
    machine = Machine(STAGES, bandwidth=1e9, types=["GPU"] * STAGES)
    rows: list[list[Any]] = []
    for layers_each, in_two in itertools.product((1, 2, 3), (False, True)):
        problem = training(STAGES * layers_each, SHARDS, machine, in_two=in_two)
        stage = [layer_of(name) // layers_each for name in problem.graph.op_names]
        found = ordered(problem, np.array(stage, dtype=np.int32))
        work = 3.0 * layers_each * SHARDS
        for name, outcome in (("none", found.without), ("edges", found.outcome)):
            peaks = [peak / SIZE / layers_each for peak in outcome.peak_bytes]
            bubble = 1.0 - work / outcome.step_seconds
            held = ", ".join(f"{peak:.2f}" for peak in peaks)
            ops = "two ops" if in_two else "one op"
            rows.append([layers_each, ops, name, outcome.step_seconds, bubble, held])
    ideal = (STAGES - 1) / (SHARDS + STAGES - 1)
    return {
        "note": f"{SHARDS} shards, {STAGES} stages; a pipeline's bubble is (K - 1) / (M + K - 1) = "
        f"{ideal:.3f} of the step, and 1F1B holds the activations of 4, 3, 2 and 1 shards; "
        "backward of two ops hands the gradient of a layer's input on and may put that of its "
        "weight off (zero bubble)",
        "columns": [
            {"name": "layers of a stage", "format": "d"}, {"name": "backward"}, {"name": "order"},
            {"name": "step, s", "format": ".2f"}, {"name": "bubble", "format": ".3f"},
            {"name": "shards' activations on each stage"},
        ],
        "rows": rows,
    }  # fmt: skip
