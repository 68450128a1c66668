"""`tfplace COMMAND [ARGS] [--flags]`: commands, their flags, exit statuses, error lines.

Nothing heavy is imported here; a command's module is imported when the command runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
import os
import stat
import sys
import textwrap
import traceback
from collections.abc import Sequence

from absl import flags

from graphs.errors import TfplaceError, UsageError
from graphs.host.did_you_mean import did_you_mean
from tfplace.commands import flag_table as table
from tfplace.commands.flag_table import Flag
from tfplace.commands.native_stderr import NativeStderr
from tfplace.interruption import interruptible

LOUD = 2  # from this verbosity on also what TensorFlow has to say
EXIT_USAGE = 1
EXIT_TOO_BIG = 2
EXIT_INTERRUPTED = 5
EXIT_DEFECT = 70
WIDTH = 80
LONGEST_WORD = 300  # of an error line: a path may be long, a name of a damaged file endless
LONGEST_LINE = 2000


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of tfplace.

    Attributes:
      arguments: what stands behind its name in the usage line; lower case is literal.
      summary: one line.
      flags: its flags, in the order of --help.
      examples: command lines that work.
      num_arguments: how many positional arguments it takes.
    """

    arguments: str
    summary: str
    flags: tuple[Flag, ...]
    examples: tuple[str, ...]
    num_arguments: int = 1


COMMANDS = {
    "optimize": Command(
        "MODEL",
        "place a model's ops, emit a SavedModel, verify and time it, report",
        table.OUTPUT_DIR
        + table.CLUSTER
        + table.ALGORITHM
        + table.BUDGET
        + table.SEED
        + table.RUN
        + table.CONSTRAINTS
        + table.COST_CACHE
        + table.CHECKPOINT_DIR
        + table.DUMP
        + table.LOGDIR
        + table.FORMAT,
        (
            "tfplace optimize model.pb",
            "tfplace optimize saved_model_dir --cluster=workers:2 --output_dir=placed",
            "tfplace optimize rnnlm.pb --algorithm=spotlight --cluster=k80x2",
        ),
    ),
    "inspect": Command(
        "MODEL",
        "show what is in a model: ops by type, colocation, devices, bytes",
        table.CLUSTER + table.RUN + table.CONSTRAINTS + table.COST_CACHE + table.FORMAT,
        ("tfplace inspect model.pb", "tfplace inspect saved_model_dir --format=json"),
    ),
    "check": Command(
        "MODEL",
        "would the model's device strings run on a cluster, op by op",
        table.CLUSTER + table.RUN + table.COST_CACHE + table.FORMAT,
        (
            "tfplace check placed_dir --cluster=k80x2",
            "tfplace check model.pb --cluster=box.json --format=json",
        ),
    ),
    "measure": Command(
        "MODEL",
        "time training runs, alone or against a placement, interleaved",
        table.PLACEMENT + table.MEASURE + table.CLUSTER + table.SEED + table.RUN + table.FORMAT,
        (
            "tfplace measure model.pb --cluster=workers:2",
            "tfplace measure model.pb --cluster=workers:2 --placement=placement.json",
        ),
    ),
    "simulate": Command(
        "MODEL",
        "predict step time, peak memory and timeline of a placement",
        table.PLACEMENT
        + table.SIMULATE
        + table.CLUSTER
        + table.RUN
        + table.CONSTRAINTS
        + table.COST_CACHE
        + table.DUMP
        + table.FORMAT,
        (
            "tfplace simulate model.pb --cluster=k80x4",
            "tfplace simulate model.pb --cluster=k80x4 --placement=placement.json",
        ),
    ),
    "graph": Command(
        "NAME",
        "write a benchmark training graph as GraphDef or SavedModel",
        table.OUTPUT + table.SIZES + table.FORMAT,
        (
            "tfplace graph rnnlm --output=rnnlm.pb",
            "tfplace graph nmt --num_layers=4 --output=nmt4.pb",
            "tfplace graph cifar10 --size=tiny --output=cifar10_saved_model",
        ),
    ),
    "bench": Command(
        "",
        "compare algorithms over models and clusters at equal budgets",
        table.BENCH + table.BUDGET + table.OUTPUT + (table.CLUSTER[1],) + table.FORMAT,
        (
            "tfplace bench --models=rnnlm,nmt:num_layers=4 --clusters=k80x2,k80x4 "
            "--algorithms=random,spotlight --seeds=1,2,3 --max_trials=1000 --output=bench.json",
        ),
        num_arguments=0,
    ),
    "train": Command(
        "",
        "train one policy over a family of graphs, for optimize --policy",
        table.TRAIN + table.SEED + table.OUTPUT + table.CHECKPOINT_DIR + table.FORMAT,
        (
            "tfplace train --family=rnnlm --output=rnnlm.npz",
            "tfplace train --family=nmt --clusters=k80x4 --episodes=500 --output=nmt.npz",
        ),
        num_arguments=0,
    ),
    "fidelity": Command(
        "MODEL",
        "compare predicted with measured step times over many placements",
        table.FIDELITY
        + table.CLUSTER
        + table.SEED
        + table.OUTPUT
        + table.RUN
        + table.CONSTRAINTS
        + table.COST_CACHE
        + table.FORMAT,
        (
            "tfplace fidelity model.pb --cluster=workers2.json",
            "tfplace fidelity model.pb --cluster=workers2.json --placements=30 "
            "--output=fidelity.json --picture=fidelity.png",
        ),
    ),
    "calibrate": Command(
        "",
        "measure this machine's devices and links, write a cluster file",
        (table.CLUSTER[0],) + table.CALIBRATE + table.OUTPUT + table.FORMAT,
        (
            "tfplace calibrate --cluster=workers:2 --output=workers2.json",
            "tfplace calibrate --output=here.json --format=json",
        ),
        num_arguments=0,
    ),
    "batch": Command(
        "JOBS",
        "run many commands, one line each: isolated, resumable, one summary",
        table.BATCH + table.FORMAT,
        (
            "tfplace batch jobs.txt",
            "tfplace batch jobs.txt --parallel=2 --time_limit_seconds=3600 --memory_limit=8GiB",
        ),
    ),
    "devices": Command(
        "",
        "list the named clusters and the devices visible here",
        (table.CLUSTER[0],) + table.FORMAT,
        ("tfplace devices", "tfplace devices --cluster=k80x4 --format=json"),
        num_arguments=0,
    ),
    "cache": Command(
        "",
        "list the op costs kept between runs, or remove them",
        table.CLEAR_CACHE + table.COST_CACHE_DIR + table.FORMAT,
        ("tfplace cache", "tfplace cache --clear"),
        num_arguments=0,
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line (without the program's name); returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    native_stderr = NativeStderr()
    verbosity = verbosity_of(words)
    is_verbose = verbosity > 0
    if arguments is None and verbosity < LOUD:
        native_stderr.divert()
    try:
        with interruptible():
            return _dispatch(words)
    except TfplaceError as error:
        return _fail(str(error), error.exit_status, is_verbose)
    except MemoryError as error:
        message = (
            f"running out of this machine's memory ({error}); wanted more memory than there is: "
            "give a smaller --batch_size or model, or use a larger machine"
        )
        return _fail(message, EXIT_TOO_BIG, is_verbose)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was written", EXIT_INTERRUPTED, is_verbose)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        print(native_stderr.tail(), end="", file=sys.stderr)
        message = f"a defect of tfplace: {type(error).__name__}: {error}; please report it"
        return _fail(message, EXIT_DEFECT, is_traced=True)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "-help", "help", "--helpshort", "--helpfull"):
        if len(words) > 1 and words[0] == "help":
            print(command_help(_known_command(words[1])))
        else:
            print(overview())
        return 0 if words else EXIT_USAGE
    if words[0] == "--version":
        from tfplace import __version__

        print(f"tfplace {__version__}")
        return 0
    name = _known_command(words[0])
    if any(word in ("--help", "-h", "-help", "--helpshort", "--helpfull") for word in words[1:]):
        print(command_help(name))
        return 0
    arguments, values = parse(name, words[1:])
    module = importlib.import_module(f"tfplace.commands.{name}")
    status: int = module.run(arguments, values)
    return status


def _known_command(name: str) -> str:
    """The name itself.

    Raises:
      UsageError: there is no such command.
    """
    if name in COMMANDS:
        return name
    if name.startswith("-"):
        raise UsageError(
            f"reading the command line: found {name!r} before the command; wanted `tfplace COMMAND "
            f"[ARGS] [--flags]`{did_you_mean(name, ('--help', '--version'))}"
        )
    raise UsageError(
        f"reading the command line: there is no command {name!r}"
        f"{did_you_mean(name, COMMANDS)} (commands: {', '.join(COMMANDS)})"
    )


def verbosity_of(words: Sequence[str]) -> int:
    """What --verbosity says, here or in a flagfile; 0 where it says nothing that can be read."""
    values = table.define(table.FORMAT)
    try:
        _require_flagfiles(words)
        expanded = values.read_flags_from_files(list(words), force_gnu=True)
    except (flags.Error, OSError, ValueError, UsageError):  # told when the flags are parsed
        expanded = list(words)
    found = 0
    for word, following in itertools.pairwise([*expanded, ""]):
        flag, has_value, value = word.partition("=")
        if flag in ("--verbosity", "-verbosity"):
            with contextlib.suppress(ValueError):
                found = int(value if has_value else following)
    return found


def parse(
    name: str, words: Sequence[str], more_flags: Sequence[Flag] = ()
) -> tuple[list[str], flags.FlagValues]:
    """Splits a command's words into arguments and flags; `more_flags` are not the command's own.

    Raises:
      UsageError: an unknown flag, a bad value, or a wrong number of arguments.
    """
    command = COMMANDS[name]
    values = table.define((*command.flags, *more_flags))
    _require_flagfiles(words)
    try:
        rest = values(["tfplace", *words])[1:]
    except flags.CantOpenFlagFileError as error:
        cause = error.__context__
        raise UsageError(
            f"reading the flags of `tfplace {name}`: the flagfile "
            f"{getattr(cause, 'filename', '')!r} can't be opened "
            f"({getattr(cause, 'strerror', error)}); give --flagfile another path"
        ) from None
    except flags.UnrecognizedFlagError as error:
        raise UsageError(
            f"reading the flags of `tfplace {name}`: there is no flag --{error.flagname}; "
            f"`tfplace {name} --help` lists them{_flag_meant(error.flagname, values)}"
        ) from None
    except (flags.Error, OSError, ValueError) as error:  # absl has no error of its own for some
        raise UsageError(
            f"reading the flags of `tfplace {name}`: {_one_line(str(error))}"
            f"; `tfplace {name} --help` lists them"
        ) from None
    if len(rest) != command.num_arguments:
        wanted = command.arguments or "no argument"
        raise UsageError(
            f"reading the command line: `tfplace {name}` takes {wanted}, found "
            f"{len(rest)} arguments{': ' + ' '.join(rest) if rest else ''}; "
            f"try `{command.examples[0]}`"
        )
    return rest, values


def _flag_meant(name: str, values: flags.FlagValues) -> str:
    """The flag of the command that is most like `name`, with its dashes."""
    known = [f"--{flag}" for flag in values if flag != "undefok"]
    known += [f"--no{flag}" for flag in values if values[flag].boolean]
    return did_you_mean(f"--{name}", known)


def _require_flagfiles(words: Sequence[str]) -> None:
    """Raises UsageError for a flagfile that never ends, such as /dev/zero."""
    for word, following in itertools.pairwise([*words, ""]):
        flag, has_value, value = word.partition("=")
        path = value if has_value else following
        if flag.lstrip("-") == "flagfile" and os.path.exists(path):
            mode = os.stat(path).st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise UsageError(f"reading --flagfile={path}: it is a device; wanted a text file")


def overview() -> str:
    """What `tfplace --help` prints."""
    rows = [f"  {name:<10}{command.summary}" for name, command in COMMANDS.items()]
    lines = [
        "tfplace decides which op of a TensorFlow graph runs on which device, writes it",
        "into the graph, and proves what it is worth.",
        "",
        "usage: tfplace COMMAND [ARGS] [--flags]",
        "",
        *rows,
        "",
        "`tfplace COMMAND --help` lists a command's flags and examples.",
    ]
    return "\n".join(lines)


def command_help(name: str) -> str:
    """What `tfplace NAME --help` prints."""
    command = COMMANDS[name]
    usage = " ".join(filter(None, ["usage: tfplace", name, command.arguments, "[--flags]"]))
    lines = [usage, "", f"{command.summary[0].upper()}{command.summary[1:]}.", "", "flags:"]
    for flag in command.flags:
        lines += _flag_help(flag)
    lines += _flag_help(Flag("flagfile", "string", None, "a file of flags, one on each line"))
    lines += ["", "examples:", *(_example(example) for example in command.examples)]
    return "\n".join(lines)


def _example(line: str) -> str:
    """An example, broken so that a shell still takes it."""
    lines = textwrap.wrap(
        line, WIDTH - 8, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
    )
    return " \\\n".join(f"  {part}" for part in lines)


def _flag_help(flag: Flag) -> list[str]:
    if flag.kind == "boolean":
        head = f"  --[no]{flag.name}"
    elif flag.choices:
        head = f"  --{flag.name}={'|'.join(choice for choice in flag.choices if choice)}"
    else:
        kind = {"integer": "N", "float": "X"}.get(flag.kind, "TEXT")
        head = f"  --{flag.name}={kind}"
    default = "" if flag.default in (None, "", [], False) else f" (default: {flag.default})"
    return [head, *textwrap.wrap(flag.help + default, WIDTH - 8, initial_indent=" " * 8,
                                 subsequent_indent=" " * 8)]  # fmt: skip


def _fail(message: str, status: int, is_traced: bool) -> int:
    if is_traced:
        traceback.print_exc()
    print(f"tfplace: error: {_one_line(message)}", file=sys.stderr)
    return status


def _one_line(text: str) -> str:
    """The text in one line that a person can read, whatever names are in it."""
    line = " ".join(_shortened(word, LONGEST_WORD) for word in text.split())
    return _shortened(line, LONGEST_LINE)


def _shortened(text: str, length: int) -> str:
    """At most `length` characters: the first two thirds and the end, where the remedy stands."""
    if len(text) <= length:
        return text
    return f"{text[: length * 2 // 3]}...{text[3 - length // 3 :]}"
