"""The search of `optimize` in its --checkpoint_dir."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path

from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.progress import Progress
from tfplace.search.kept.folder import SearchFolder, locked_folder, problem_digest
from tfplace.units_text import seconds_text


@contextlib.contextmanager
def kept_search(
    prepared: PreparedModel, options: OptimizeOptions, progress: Progress
) -> Iterator[tuple[PreparedModel, SearchFolder | None]]:
    """The folder of --checkpoint_dir, held by this process, and the problem as priced there.

    Costs that are measured anew differ a little, so a search that goes on keeps its first run's.
    Without --checkpoint_dir it is the problem as it is, and None.

    Raises:
      CheckpointError: the folder holds another search, or something damaged.
      OutputError: it can't be written, or another process works there.
    """
    if options.checkpoint_dir is None:
        yield prepared, None
        return
    identity = {
        "model, run, cluster and constraints": problem_digest(prepared.problem),
        "--algorithm": options.algorithm,
        "--evaluator": options.evaluator,
        "--policy": _content(options.policy),
        "--seed": options.seed,
        "--max_devices": options.max_devices,
    }
    doing = f"keeping the search in {options.checkpoint_dir}"
    with locked_folder(Path(options.checkpoint_dir), doing, "--checkpoint_dir"):
        folder = SearchFolder(options.checkpoint_dir, identity)
        if (state := folder.state) is not None:
            best = None if state.best is None else state.best.outcome
            progress.say(
                f"going on with the search in {options.checkpoint_dir}: {state.num_trials:,} "
                f"trials, {state.seconds:.1f} s, best "
                f"{seconds_text(getattr(best, 'step_seconds', None))}"
            )
        op_seconds = folder.costs(prepared.problem.op_seconds)  # those of the search's first run
        priced = dataclasses.replace(
            prepared,
            problem=dataclasses.replace(prepared.problem, op_seconds=op_seconds),
            costs=dataclasses.replace(prepared.costs, op_seconds=op_seconds),
        )
        yield priced, folder


def _content(policy: str | None) -> str | None:
    """A trained policy by what is in it; a shipped one by its name."""
    if policy is None or not Path(policy).is_file():
        return policy
    return hashlib.sha256(Path(policy).read_bytes()).hexdigest()[:16]
