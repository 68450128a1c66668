"""The commands of tfplace: what each takes, its flags, examples; they stand in commands.json."""

import dataclasses
import importlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from graphs.host.did_you_mean import did_you_mean
from graphs.host.op_libraries import load_named_op_libraries, load_op_libraries
from graphs.zoo.catalogue import NAMES
from tfplace.commands.quiet import quiet_tensorflow

# Every flag of every command, defined once, in commands.json.

Value = str | int | float | bool | None | list[str]


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag.

    Attributes:
      name: without dashes.
      kind: one of string, integer, float, boolean, enum, and multi: may be given several times.
      default: the value where it is not given.
      help: what --help says.
      choices: the values of an enum.
      least: the least value of a number, None for any.
    """

    name: str
    kind: str
    default: Value
    help: str
    choices: Sequence[str] = ()
    least: float | None = None


TABLE = json.loads(Path(__file__).with_name("commands.json").read_text("utf-8"))
"""Groups of flags, each a list of flags and names of other groups; and the commands."""


def group(*names: str) -> tuple[Flag, ...]:
    """The flags of some groups of the table, in order."""
    found: list[Flag] = []
    for row in (row for name in names for row in TABLE["groups"][name]):
        found += group(row) if isinstance(row, str) else [Flag(**row)]
    return tuple(found)


FORMAT, JOB, SIZES = group("FORMAT"), group("JOB"), group("SIZES")


class _Choice(flags.EnumParser):
    """As absl's, but a misspelt value is told with the one it is most like."""

    def parse(self, argument: str) -> str:
        if argument not in self.enum_values:
            wanted = [value for value in self.enum_values if value]
            raise ValueError(
                f"wanted one of {', '.join(wanted)}{did_you_mean(str(argument), wanted)}"
            )
        return argument


class _Number(flags.FloatParser):
    """As absl's, but nan, which is neither below nor above any bound, is none."""

    def convert(self, argument: str | float) -> float:
        value = float(super().convert(argument))
        if math.isnan(value):
            raise ValueError(f"wanted {self.syntactic_help}")
        return value


def define(table: tuple[Flag, ...]) -> flags.FlagValues:
    """Fresh absl FlagValues of one command; `--flagfile` works in all of them."""
    values = flags.FlagValues()
    for flag in table:
        words = flag.name, flag.default, flag.help
        if flag.kind == "boolean":
            flags.DEFINE_boolean(*words, flag_values=values)
        elif flag.kind == "multi":
            flags.DEFINE_multi_string(*words, flag_values=values)
        else:
            text = flags.ArgumentSerializer()
            flags.DEFINE(_parser(flag), *words, flag_values=values, serializer=text)
    return values


def _parser(flag: Flag) -> flags.ArgumentParser:
    if flag.kind == "integer":
        return flags.IntegerParser(flag.least)
    if flag.kind == "float":
        return _Number(flag.least)
    return _Choice(flag.choices) if flag.kind == "enum" else flags.ArgumentParser()


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of tfplace; tfplace/commands has a module of its name, with a function `run`."""

    argument: str  # what stands behind its name in the usage line; "" where it takes nothing
    summary: str  # one line
    own_flags: tuple[Flag, ...]  # what it takes beside --format and --verbosity, which all take
    examples: tuple[str, ...]  # command lines that work
    about_argument: str = ""  # what the argument may be, a sentence; "" where its name says it

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
    """Loads what --op_library names, for commands that have it; ModelError: it can't be loaded."""
    words = values.op_library if "op_library" in values else []
    load_op_libraries(path.strip() for word in words for path in word.split(","))


def run_command(name: str, arguments: Sequence[str], values: flags.FlagValues) -> int:
    """Runs a command of the table; returns its exit status; TfplaceError: it can't do as asked."""
    if name != "batch":  # its jobs are processes, each with a --verbosity of its own
        quiet_tensorflow(values.verbosity)
    load_named_op_libraries()  # where it is a job of another process
    load_flagged(values)
    return importlib.import_module(f"tfplace.commands.{name}").run(arguments, values)
