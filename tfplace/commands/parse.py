"""Splits a command's words into arguments and flag values; its errors name what was meant."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Sequence

from absl import flags

from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean
from tfplace.commands.command_table import COMMANDS
from tfplace.commands.error_line import one_line
from tfplace.commands.flag_table import FORMAT, Flag, define


def known_command(name: str) -> str:
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
    values = define(FORMAT)
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
    values = define((*command.flags, *more_flags))
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
            f"reading the flags of `tfplace {name}`: {one_line(str(error))}"
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
