"""What `tfplace --help` and `tfplace COMMAND --help` print."""

from __future__ import annotations

import textwrap

from tfplace.commands.command_table import COMMANDS
from tfplace.commands.flag_table import Flag

WIDTH = 80  # columns


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
