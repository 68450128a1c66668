"""`tfplace COMMAND [ARGS] [--flags]`: finds the command, runs it, and turns errors into one line.

Nothing heavy is imported here; a command's module is imported when the command runs.
"""

import atexit
import errno
import os
import sys
import textwrap
import traceback
from collections.abc import Sequence
from typing import NoReturn

from graphs.errors import OutputError, TfplaceError, UsageError
from tfplace.commands import outcome
from tfplace.commands.command_table import COMMANDS, Flag, run_command
from tfplace.commands.parse import known_command, parse, verbosity_of
from tfplace.commands.quiet import LOUD, NativeStderr, take_streams_as_they_are
from tfplace.interruption import interruptible

_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_HELP = ("--help", "-h", "-help", "--helpshort", "--helpfull")
WIDTH = 80  # columns


def run() -> NoReturn:
    """Runs the program's command line and ends the process with its exit status.

    It ends without Python's own shutdown: a thread that still computes what nobody waits for after
    Ctrl-C, such as a bound, would be unwound there, which C++ that is in between answers with an
    abort. Freeing all that a large graph consists of would take seconds besides.
    """
    take_streams_as_they_are()
    status = main()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        status = status or _fail(_not_written(error), OutputError.exit_status, is_traced=False)
    sys.stderr.flush()
    os._exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line (without the program's name); returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    native_stderr = NativeStderr()
    verbosity = verbosity_of(words)
    if arguments is None and verbosity < LOUD:
        native_stderr.divert()
    try:
        with interruptible():
            return _dispatch(words)
    except TfplaceError as error:
        return _fail(str(error), error.exit_status, verbosity > 0)
    except MemoryError as error:
        message = (
            f"running out of this machine's memory ({error}); wanted more memory than there is: "
            "give a smaller --batch_size or model, or use a larger machine"
        )
        return _fail(message, outcome.EXIT_BAD_INPUT, verbosity > 0)
    except KeyboardInterrupt:
        return _fail(
            "interrupted; nothing is left half-written", outcome.EXIT_INTERRUPTED, verbosity > 0
        )
    except Exception as error:
        if full := _no_room(error):
            return _fail(_not_written(full), OutputError.exit_status, verbosity > 0)
        print(native_stderr.tail(), end="", file=sys.stderr)
        message = f"a defect of tfplace: {type(error).__name__}: {error}; please report it"
        return _fail(message, outcome.EXIT_DEFECT, is_traced=True)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in (*_HELP, "help"):
        if len(words) > 1 and words[0] == "help":
            print(command_help(known_command(words[1])))
        else:
            print(overview())
        if not words:
            raise UsageError(
                "reading the command line: found no command; wanted `tfplace COMMAND [ARGS] "
                "[--flags]`, as above"
            )
        return 0
    if words[0] == "--version":
        from tfplace.version import __version__

        print(f"tfplace {__version__}")
        return 0
    name = known_command(words[0])
    if any(word in _HELP for word in words[1:]):
        print(command_help(name))
        return 0
    return run_command(name, *parse(name, words[1:]))


def _no_room(error: Exception) -> OSError | None:
    """The error as that of a full disk, which TensorFlow tells in words alone; None for another."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return error
    words = os.strerror(errno.ENOSPC)
    return OSError(errno.ENOSPC, words) if words in str(error) else None


def _not_written(error: OSError) -> str:
    return (
        f"writing {error.filename or 'what was made'}: {error.strerror}; wanted more room: make "
        "some, or choose another place"
    )


def _fail(message: str, status: int, is_traced: bool) -> int:
    if is_traced:
        traceback.print_exc()
    return outcome.failed(message, status)


def overview() -> str:
    """What `tfplace --help` prints."""
    lines = [
        "tfplace decides which op of a TensorFlow graph runs on which device, writes it",
        "into the graph, and proves what it is worth.",
        "",
        "usage: tfplace COMMAND [ARGS] [--flags]",
        "",
        *[f"  {name:<10}{command.summary}" for name, command in COMMANDS.items()],
        "",
        "`tfplace COMMAND --help` lists a command's flags and examples;",
        "`tfplace --version` prints which tfplace this is.",
    ]
    return "\n".join(lines)


def command_help(name: str) -> str:
    """What `tfplace NAME --help` prints."""
    command = COMMANDS[name]
    usage = " ".join(filter(None, ["usage: tfplace", name, command.argument, "[--flags]"]))
    lines = [usage, "", f"{command.summary[0].upper()}{command.summary[1:]}."]
    lines += [*textwrap.wrap(command.about_argument, WIDTH - 2), "", "flags:"]
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
    says_nothing = flag.default is False or flag.default in (None, "", [])
    default = "" if says_nothing else f" (default: {flag.default})"
    return [head, *textwrap.wrap(flag.help + default, WIDTH - 8, initial_indent=" " * 8,
                                 subsequent_indent=" " * 8)]  # fmt: skip
