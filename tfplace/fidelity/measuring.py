"""Step times of many placements, measured side by side, in batches that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphs.op_graph import IntArray
from graphs.placement import Infeasible
from tfplace.measurement.run_measurement import Timings, measure_variants
from tfplace.measurement.step_limits import StepLimits, exactly
from tfplace.preparing.prepare import PreparedModel

MAX_BATCH = 16
"""Placements that are stepped in turn: the machine's speed may change from batch to batch."""
COPIES_OF_VARIABLES = 2
"""A prepared placement holds its variables, and a step their gradients."""


def measured_steps(
    prepared: PreparedModel,
    placements: Sequence[IntArray],
    limits: StepLimits,
    tell: Callable[[str], None],
) -> list[Timings | Infeasible]:
    """[P] step times over interleaved rounds.

    All placements of a batch are prepared at once and stepped in turn, so that a change of the
    machine's speed meets all of them. Batches hold as many as fit: their variables all stay.

    Args:
      prepared: the problem; its devices are present.
      placements: i4[N] each.
      limits: how many rounds.
      tell: takes a sentence about what is being measured.
    """
    results: list[Timings | Infeasible] = []
    size = _batch_size(prepared)
    for start in range(0, len(placements), size):
        batch = placements[start : start + size]
        tell(f"timing placements {start + 1} to {start + len(batch)} of {len(placements)}")
        variants = {str(i): prepared.placed_run_graph(p) for i, p in enumerate(batch)}
        timed = measure_variants(variants, prepared.training_run(), prepared.cluster, limits)
        results += [timed[name] for name in variants]
    return results


def _batch_size(prepared: PreparedModel) -> int:
    """Placements whose variables fit into the fullest device's memory together."""
    persistent = int(prepared.problem.graph.op_persistent_bytes.sum())
    usable = float(np.min(prepared.problem.usable_bytes()))
    fitting = int(usable // max(COPIES_OF_VARIABLES * persistent, 1))
    return max(1, min(MAX_BATCH, fitting))


def rounds(num_rounds: int, seed: int) -> StepLimits:
    """Exactly so many rounds after one of warming up."""
    return exactly(num_rounds, warmup_steps=1, seed=seed)
