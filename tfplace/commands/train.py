"""`tfplace train --family=NAME --output=FILE.npz`."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from graphs.counted import counted
from graphs.errors import UsageError
from graphs.protos import Json
from tfplace.commands.outcome import EXIT_INTERRUPTED, failed, require_output, text_output

if TYPE_CHECKING:
    from tfplace.algorithms.learned.training.checkpoint import Checkpoint
    from tfplace.algorithms.learned.training.training import TrainingResult

TRAINING_FILE = "training.npz"


def run(arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Trains, or goes on with what --output holds, and writes the checkpoint."""
    from graphs.clusters.discovery import find_cluster
    from tfplace.algorithms.learned.training.checkpoint import Recipe, write_checkpoint
    from tfplace.algorithms.learned.training.families import split_family
    from tfplace.output_paths import require_file, writable
    from tfplace.progress import progress_for

    require_output(values.output, ".npz", "writing the trained policy", "FILE.npz")
    split_family(values.family, values.num_graphs, values.seed)
    clusters = tuple(name for name in values.clusters.split(",") if name)
    if not clusters:
        raise UsageError("reading --clusters: it is empty; wanted A,B,... as in k80x2,k80x4")
    require_file(values.output, "--output")
    kept = None if values.checkpoint_dir is None else Path(values.checkpoint_dir, TRAINING_FILE)
    recipe = Recipe(values.family, clusters, values.num_graphs, values.seed)
    start = None if values.overwrite else _latest(values.output, kept)
    for name in clusters:
        if name != "local":  # which is known to TensorFlow, and there
            find_cluster(name)

    def keep(checkpoint: "Checkpoint") -> None:
        if kept is not None:
            write_checkpoint(str(kept), checkpoint)

    progress = progress_for(values.verbosity)
    with (
        writable(values.output, None if kept is None else str(kept)),
        progress.working(values.budget_seconds),
    ):
        from tfplace.algorithms.learned.training.training import CONFIG, TrainingLimits, train

        limits = TrainingLimits(values.episodes, values.budget_seconds)
        if start is not None:
            progress.say(
                f"going on after {counted(start.episodes, 'episode')}, {start.seconds:.0f} s"
            )
        result = train(recipe, limits, start, progress.say, CONFIG, keep)
        write_checkpoint(values.output, result.checkpoint)
    facts = _facts(values.output, result)
    if text_output(values, facts):
        print("\n".join(_lines(facts)))
    if result.interrupted:
        return failed(
            f"training a policy: interrupted after {counted(facts['episodes'], 'episode')}; the "
            f"policy so far is in {values.output}",
            EXIT_INTERRUPTED,
        )
    return 0


def _latest(output: str, kept: Path | None) -> "Checkpoint | None":
    """What a killed or an earlier training left, the longer one; CheckpointError: it is damaged."""
    from tfplace.algorithms.learned.training.checkpoint import read_checkpoint

    paths = [
        path
        for path in (output, None if kept is None else str(kept))
        if path and os.path.exists(path)
    ]
    return max(map(read_checkpoint, paths), key=lambda each: each.episodes, default=None)


def _facts(output: str, result: "TrainingResult") -> dict[str, Json]:
    checkpoint = result.checkpoint
    return {
        "output": output,
        **dataclasses.asdict(checkpoint.recipe),
        "episodes": checkpoint.episodes,
        "seconds": checkpoint.seconds,
        "held_out": checkpoint.held_out,
        "interrupted": result.interrupted,
    }


def _lines(facts: dict[str, Json]) -> list[str]:
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
        f"{counted(facts['episodes'], 'episode')}, {facts['seconds']:.0f} s",
        f"held out  {counted(held['num_tasks'], 'task')}; step time on the best single device = 1",
        *(f"  {name:<34}{'does not fit' if x is None else f'{x:.3f}'}" for name, x in rows),
        *(["stopped   before it was judged; the same command goes on"] * (held["after"] is None)),
        f"written   {facts['output']}",
        "use it    tfplace optimize MODEL --policy=" + facts["output"],
    ]
