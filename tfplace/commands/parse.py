"""Splits a command's words into arguments and flag values; its errors name what was meant."""

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence

from absl import flags

from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean
from graphs.host.whole_file import is_device
from tfplace.commands.command_table import COMMANDS, FORMAT, Flag, define
from tfplace.commands.outcome import one_line

_WANTED = {
    "could not convert string to float: ": "a number",
    r"invalid literal for int\(\) with base 10: ": "a whole number",
    r"\('Non-boolean argument to boolean flag', ": "true or false",
}


def known_command(name: str) -> str:
    """The name itself; UsageError: there is no such command."""
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
    """What --verbosity says, here or in a flagfile; 0 where it says nothing that can be read.

    It has to be known before the flags are parsed: it decides how an error in them is told.
    """
    words = list(words)
    with contextlib.suppress(flags.Error, OSError, ValueError, UsageError):  # `parse` tells them
        require_flagfiles(words)
        words = define(FORMAT).read_flags_from_files(words, force_gnu=True)
    verbosity = 0
    for flag, value in _flags_with_values(words):
        if flag in ("--verbosity", "-verbosity"):
            with contextlib.suppress(ValueError):
                verbosity = int(value)
    return verbosity


def parse(
    name: str, words: Sequence[str], more_flags: Sequence[Flag] = ()
) -> tuple[list[str], flags.FlagValues]:
    """Splits a command's words into arguments and flags; `more_flags` are not the command's own.

    Raises:
      UsageError: an unknown flag, a bad value, or a wrong number of arguments.
    """
    command = COMMANDS[name]
    values = define((*command.flags, *more_flags))
    doing, remedy = f"reading the flags of `tfplace {name}`", f"`tfplace {name} --help` lists them"
    require_flagfiles(words)
    try:
        arguments = values(["tfplace", *words])[1:]
    except flags.CantOpenFlagFileError as error:
        cause = error.__context__
        raise UsageError(
            f"{doing}: the flagfile {getattr(cause, 'filename', '')!r} can't be opened "
            f"({getattr(cause, 'strerror', error)}); give --flagfile another path"
        ) from None
    except flags.UnrecognizedFlagError as error:
        known = [f"--{flag}" for flag in values if flag != "undefok"]
        known += [f"--no{flag}" for flag in values if values[flag].boolean]
        meant = did_you_mean(f"--{error.flagname}", known)
        raise UsageError(f"{doing}: there is no flag --{error.flagname}; {remedy}{meant}") from None
    except (flags.Error, OSError, ValueError) as error:  # absl has no error of its own for some
        message = one_line(str(error))
        for words_of_python, wanted in _WANTED.items():
            message = re.sub(rf"{words_of_python}.*", f"wanted {wanted}", message)
        raise UsageError(f"{doing}: {message}; {remedy}") from None
    if len(arguments) != bool(command.argument):
        several = "arguments" if len(arguments) != 1 else "argument"
        raise UsageError(
            f"reading the command line: `tfplace {name}` takes {command.argument or 'no argument'},"
            f" found {len(arguments)} {several}{': ' * bool(arguments)}{' '.join(arguments)}; try "
            f"`{command.examples[0]}`"
        )
    return arguments, values


def require_flagfiles(words: Sequence[str]) -> None:
    """Raises UsageError for a flagfile that never ends, such as /dev/zero."""
    for flag, path in _flags_with_values(words):
        if flag.lstrip("-") == "flagfile" and os.path.exists(path) and is_device(path):
            raise UsageError(f"reading --flagfile={path}: it is a device; wanted a text file")


def _flags_with_values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word before its "=", and what stands behind it, or else the next word."""
    for word, following in itertools.pairwise([*words, ""]):
        flag, has_value, value = word.partition("=")
        yield flag, value if has_value else following
