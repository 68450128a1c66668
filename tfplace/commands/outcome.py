"""How a command begins, and how it ends: its result, a line on stderr, an exit status."""

import json
import os
import sys
from typing import TYPE_CHECKING

from absl import flags

import graphs.late_tensorflow as tf
from graphs.counted import counted
from graphs.errors import BadInputError, FeedError, PlacementError, UsageError
from graphs.host.did_you_mean import did_you_mean_file
from graphs.loading.sniff import require_there

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Of the contract, section 2; graphs/errors.py has the others.
EXIT_USAGE, EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_DEFECT = 1, 2, 5, 70
LONGEST_WORD = 300  # of an error line: a path may be long, a name in a damaged file endless
LONGEST_LINE = 2000


def text_output(values: flags.FlagValues, result: object) -> "Console | None":
    """Prints the result with --format=json; else returns where to print it for a person."""
    if values.format == "json":
        from tfplace.report.report import plain

        json.dump(plain(result), sys.stdout, indent=2, allow_nan=False)
        print()
        return None
    from tfplace.report.text import console

    return console()


def plain_table(title: str, *columns: str) -> "Table":
    """A table without lines; what is too long for its column is broken, not cut."""
    from rich.table import Column, Table

    first, *others = (Column(name, overflow="fold") for name in columns)
    first.no_wrap = True  # it names the row
    return Table(first, *others, box=None, padding=(0, 2, 0, 0), title=title, title_justify="left")


def failed(message: str, status: int) -> int:
    """Prints `tfplace: error: MESSAGE` on stderr and returns the exit status."""
    print(f"tfplace: error: {one_line(message)}", file=sys.stderr)
    return status


def interrupted(doing: str, num_trials: int, where: str) -> int:
    """Says where the best so far is, and after how many trials if the search was reached."""
    after = f" after {counted(num_trials, 'trial')}" if num_trials else ""
    return failed(f"{doing}: interrupted{after}; the best so far {where}", EXIT_INTERRUPTED)


def one_line(text: str) -> str:
    """The text in one line that a person can read, whatever names are in it."""
    line = " ".join(_shortened(word, LONGEST_WORD) for word in text.split())
    return _shortened(line, LONGEST_LINE)


def _shortened(text: str, length: int) -> str:
    """At most `length` characters: the first two thirds and the end, where the remedy stands."""
    return text if len(text) <= length else f"{text[: length * 2 // 3]}...{text[3 - length // 3 :]}"


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
    """Starts TensorFlow, where it isn't running yet, and says so on stderr.

    This process keeps off the GPUs: their memory is for real runs, which are children's.
    """
    if "tensorflow" not in sys.modules:
        from tfplace.progress import progress_for

        progress_for(verbosity).say("starting TensorFlow")
        tf.config.set_visible_devices([], "GPU")


def _require_file(values: flags.FlagValues, flag: str, error: type[BadInputError]) -> None:
    path = values[flag].value if flag in values else None
    if path is not None and not os.path.exists(path):
        raise error(
            f"reading --{flag}={path}: there is no such file; check the path"
            f"{did_you_mean_file(path)}"
        )
