"""The commands of tfplace: what each takes, its flags, examples; they stand in commands.json."""

import dataclasses
import importlib
from collections.abc import Sequence

from absl import flags

from graphs.host.op_libraries import load_named_op_libraries, load_op_libraries
from graphs.zoo.catalogue import NAMES
from tfplace.commands.flag_table import FORMAT, TABLE, Flag, group
from tfplace.commands.quiet import quiet_tensorflow


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of tfplace; tfplace/commands has a module of its name, with a function `run`.

    Attributes:
      argument: what stands behind its name in the usage line; "" where it takes nothing.
      summary: one line.
      own_flags: what it takes beside --format and --verbosity, which all take.
      examples: command lines that work.
      about_argument: what the argument may be, a sentence; "" where its name says it.
    """

    argument: str
    summary: str
    own_flags: tuple[Flag, ...]
    examples: tuple[str, ...]
    about_argument: str = ""

    @property
    def flags(self) -> tuple[Flag, ...]:
        """All flags, in the order of --help."""
        return self.own_flags + FORMAT


COMMANDS = {
    name: Command(
        each["argument"],
        each["summary"],
        group(*each["flags"]),
        tuple(each["examples"]),
        each.get("about_argument", "").format(names=", ".join(NAMES)),
    )
    for name, each in TABLE["commands"].items()
}


def load_flagged(values: flags.FlagValues) -> None:
    """Loads what --op_library names, for commands that have it.

    Raises:
      ModelError: a library can't be loaded.
    """
    words = values.op_library if "op_library" in values else []
    load_op_libraries(path.strip() for word in words for path in word.split(","))


def run_command(name: str, arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Runs a command of the table; returns its exit status.

    Raises:
      TfplaceError: it can't do what it was asked.
    """
    if name != "batch":  # its jobs are processes, each with a --verbosity of its own
        quiet_tensorflow(values.verbosity)
    load_named_op_libraries()  # where it is a job of another process
    load_flagged(values)
    return importlib.import_module(f"tfplace.commands.{name}").run(arguments, values)
