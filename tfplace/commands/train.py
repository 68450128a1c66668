"""`tfplace train --family=NAME --output=FILE.npz`."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from graphs.errors import UsageError
from tfplace.commands.from_flags import print_json, quiet_tensorflow

EXIT_INTERRUPTED = 5


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Trains, or goes on with what --output holds, and writes the checkpoint."""
    quiet_tensorflow(values.verbosity)
    from tfplace.output_paths import require_file, writable
    from tfplace.training.checkpoint import Recipe, read_checkpoint, write_checkpoint
    from tfplace.training.families import split_family

    if not values.output or not values.output.endswith(".npz"):
        raise UsageError(
            f"writing the trained policy: --output is {values.output!r}; wanted FILE.npz"
        )
    split_family(values.family, values.num_graphs, values.seed)
    clusters = tuple(name for name in values.clusters.split(",") if name)
    if not clusters:
        raise UsageError("reading --clusters: it is empty; wanted A,B,... as in k80x2,k80x4")
    require_file(values.output, "--output")
    recipe = Recipe(values.family, clusters, values.num_graphs, values.seed)
    goes_on = os.path.exists(values.output) and not values.overwrite
    start = read_checkpoint(values.output) if goes_on else None
    from tfplace.training.train import CONFIG, TrainingLimits, train

    limits = TrainingLimits(values.episodes, values.budget_seconds)
    with writable(values.output):
        result = train(
            recipe, limits, start, lambda sentence: _tell(values.verbosity, sentence), CONFIG
        )
        write_checkpoint(values.output, result.checkpoint, overwrite=True)
    checkpoint = result.checkpoint
    facts: dict[str, Any] = {
        "output": values.output,
        **dataclasses.asdict(checkpoint.recipe),
        "episodes": checkpoint.episodes,
        "seconds": checkpoint.seconds,
        "held_out": checkpoint.held_out,
        "interrupted": result.interrupted,
    }
    if values.format == "json":
        print_json(facts)
    else:
        print("\n".join(_lines(facts)))
    return EXIT_INTERRUPTED if result.interrupted else 0


def _lines(facts: dict[str, Any]) -> list[str]:
    held = facts["held_out"]
    after = held["after"] or {"final": None, "best": None}
    rows = [
        (f"random, best of {max(held['num_trials'])}", held["random"]),
        ("policy before, end of its episode", held["before"]["final"]),
        ("policy before, best on the way", held["before"]["best"]),
        ("policy after, end of its episode", after["final"]),
        ("policy after, best on the way", after["best"]),
    ]
    if held["after"] is None:  # interrupted before it was judged
        rows = rows[:-2]
    return [
        f"trained   {facts['family']} on {', '.join(facts['clusters'])}: "
        f"{facts['episodes']:,} episodes, {facts['seconds']:.0f} s",
        f"held out  {held['num_tasks']} tasks; step time on the best single device = 1",
        *(f"  {name:<34}{'does not fit' if x is None else f'{x:.3f}'}" for name, x in rows),
        *(["stopped   before it was judged; the same command goes on"] * (held["after"] is None)),
        f"written   {facts['output']}",
        "use it    tfplace optimize MODEL --policy=" + facts["output"],
    ]


def _tell(verbosity: int, sentence: str) -> None:
    if verbosity >= 0:
        print(f"tfplace: {sentence}", file=sys.stderr, flush=True)
