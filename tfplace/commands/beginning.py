"""What a command does in its first tenths of a second, before TensorFlow's import takes seconds."""

from __future__ import annotations

import os
import sys

from absl import flags

from graphs.errors import BadInputError, FeedError, PlacementError, UsageError
from graphs.host.did_you_mean import did_you_mean_file
from graphs.loading.sniff import require_there


def begin(model: str, values: flags.FlagValues) -> None:
    """Checks that the files which a command reads are there, and says what it does first.

    Raises:
      BadInputError: one isn't there; what is in them is checked where they are read.
    """
    require_there(model)
    _require_file(values, "feed", FeedError)
    _require_file(values, "placement", PlacementError)
    if values.cluster.endswith(".json"):
        from graphs.clusters.cluster_file import read_cluster

        read_cluster(values.cluster)
    say_starting(values.verbosity)


def require_output(path: str | None, ending: str, doing: str, wanted: str) -> None:
    """Raises UsageError where --output is missing, or a file's name of another ending."""
    if not path or not path.endswith(ending):
        found = repr(path) if path else "missing"
        raise UsageError(f"{doing}: --output is {found}; wanted {wanted}")


def say_starting(verbosity: int) -> None:
    """Says on stderr that TensorFlow is being started, where it isn't running yet."""
    if "tensorflow" not in sys.modules:
        from tfplace.progress import progress_for

        progress_for(verbosity).say("starting TensorFlow")


def _require_file(values: flags.FlagValues, flag: str, error: type[BadInputError]) -> None:
    path = values[flag].value if flag in values else None
    if path is not None and not os.path.exists(path):
        raise error(
            f"reading --{flag}={path}: there is no such file; check the path"
            f"{did_you_mean_file(path)}"
        )
