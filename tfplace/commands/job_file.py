"""Reading JOBS: one flagfile line per job, with defaults, includes and templates.

    # a comment
    --cluster=k80x4 --flagfile=common.flags
    rnnlm.pb --seed=1 --output_dir=placed/{name}
    simulate rnnlm.pb --placement=hand_made.json --name=by-hand

A line of flags alone holds for the lines after it. `{name}` is the job's name, `{model}` its first
argument's stem, `{seed}` the value of that flag, likewise for every flag of the job's command. A
job's name is made of its first argument and of the values of the flags on its own line, so that
it stays the same whatever other lines come and go.
"""

import dataclasses
import hashlib
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from absl import flags

from graphs.clusters.json_values import parse_bytes
from graphs.errors import JobsError, OutputError, TfplaceError, UsageError
from graphs.host.did_you_mean import did_you_mean, did_you_mean_file
from graphs.host.whole_file import read_text
from tfplace.commands.command_table import COMMANDS, JOB, Flag, define
from tfplace.commands.from_flags import given_flags, shards_asked
from tfplace.commands.parse import parse, require_flagfiles
from tfplace.runs.batch.job_state import CHECKPOINT_FOLDER, JOBS_FOLDER, Job
from tfplace.runs.executors.program import ProcessLimits

DEFAULT_COMMAND = "optimize"
OWN_FLAGS = tuple(flag.name for flag in JOB)  # of the job, not of its command
OUTPUT_FLAGS = ("output_dir", "output", "dump_problem", "timeline", "picture")
PLACE_FLAGS = (*OUTPUT_FLAGS, "checkpoint_dir")
LONGEST_NAME = 80
_TEMPLATE = re.compile(r"\{([a-z_]+)\}")
_UNFIT = re.compile(r"[^A-Za-z0-9._+-]+")


@dataclasses.dataclass(frozen=True)
class JobFile:
    """A file of jobs, and what its lines are read with."""

    path: str  # of the file
    output_dir: str  # the batch's folder
    limits: ProcessLimits  # those of jobs whose line sets none

    def read(self) -> list[Job]:
        """The jobs in order, with an `error` where one can't run; JobsError: no file, or no job."""
        jobs: list[Job] = []
        defaults: list[str] = []
        for number, line in enumerate(self._lines(), start=1):
            try:
                words = _words(line)
                if words and all(word.startswith("-") for word in words):
                    defaults += words
                elif words:
                    job = self._job(number, line.strip(), words, defaults)
                    self._require_apart(job, jobs)
                    jobs.append(job)
            except TfplaceError as error:
                jobs.append(Job(f"line-{number}", number, line.strip(), error=str(error)))
        if not jobs:
            raise JobsError(
                f"reading the jobs in {self.path}: found none; wanted lines `MODEL --flags`"
            )
        return jobs

    def _lines(self) -> list[str]:
        try:
            return read_text(self.path).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text in UTF-8"
            is_missing = isinstance(error, FileNotFoundError)
            raise JobsError(
                f"reading the jobs in {self.path}: {why}; wanted a text file with a line "
                f"`MODEL --flags` for each job{did_you_mean_file(self.path) if is_missing else ''}"
            ) from None

    def _job(self, number: int, line: str, words: Sequence[str], defaults: Sequence[str]) -> Job:
        if words[0] == "batch":
            raise UsageError(
                f"reading line {number} of {self.path}: a batch can't be a job; put its lines here "
                "(a model of this name is ./batch)"
            )
        has_command = words[0] in COMMANDS
        command = words[0] if has_command else DEFAULT_COMMAND
        own = words[has_command:]
        try:
            given_words, left_out = fitting(command, own, defaults, JOB)
        except flags.Error:  # a flagfile that can't be opened: `parse` says so
            given_words, left_out = [*defaults, *own], []
        arguments, values = parse(command, given_words, JOB)
        # {name: value} of what templates may name.
        facts = {key: _text(values[key].value) for key in values if key not in OWN_FLAGS}
        if arguments:
            facts["model"] = _stem(arguments[0])
        name = _fitting(_filled(values.name, facts) if values.name else _default_name(words))
        facts["name"] = name
        given = given_flags(values, without=(*OWN_FLAGS, "format"))
        own_words = tuple(_filled(word, facts) for word in [*arguments, *given])
        places = {
            key: _filled(values[key].value or "", facts) for key in PLACE_FLAGS if key in values
        }
        added = []
        for flag, folder in (("output_dir", "placed"), ("checkpoint_dir", CHECKPOINT_FOLDER)):
            is_kept = flag != "checkpoint_dir" or shards_asked(values) != "auto"
            if places.get(flag) == "" and is_kept:  # a search of several problems is not
                places[flag] = str(Path(self.output_dir, JOBS_FOLDER, name, folder))
                added.append(f"--{flag}={places[flag]}")
        return Job(
            name=name,
            line_number=number,
            line=line,
            command=command,
            words=own_words,
            added_flags=tuple(added),
            outputs=tuple(path for key, path in places.items() if path and key != "checkpoint_dir"),
            has_overwrite="overwrite" in values,
            limits=self._limits(values),
            left_out=tuple(left_out),
        )

    def _limits(self, values: flags.FlagValues) -> ProcessLimits:
        own = vars(job_limits(values))
        given = {name: limit for name, limit in own.items() if limit is not None}
        return dataclasses.replace(self.limits, **given)

    def _require_apart(self, job: Job, others: Sequence[Job]) -> None:
        """Makes sure that a job has its name and its outputs for itself.

        Raises:
          UsageError: it has the name of another one.
          OutputError: it writes where another one does.
        """
        doing = f"reading line {job.line_number} of {self.path}"
        outputs = set(map(os.path.abspath, job.outputs))
        for other in others:
            if other.name == job.name:
                raise UsageError(
                    f"{doing}: line {other.line_number} has the same name {job.name!r}; give one "
                    "of them --name=…"
                )
            shared = outputs & set(map(os.path.abspath, other.outputs))
            if shared:
                raise OutputError(
                    f"{doing}: line {other.line_number} writes {min(shared)} too; give each its "
                    "own, as with --output_dir=placed/{name}"
                )


def job_limits(values: flags.FlagValues) -> ProcessLimits:
    """What --time_limit_seconds, --memory_limit and --num_gpus say, None where one isn't given.

    Raises:
      UsageError: --memory_limit is no size.
    """
    memory = values.memory_limit
    where = "reading the flags: --memory_limit"
    memory_bytes = None if memory is None else parse_bytes(where, memory, UsageError)
    return ProcessLimits(
        time_limit_seconds=values.time_limit_seconds,
        memory_limit_bytes=memory_bytes,
        num_gpus=values.num_gpus,
    )


def _words(line: str) -> list[str]:
    """The line as a shell splits it, up to a word that begins with #; none if it begins with //."""
    if line.lstrip().startswith(("#", "//")):
        return []
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(
            f"reading the line `{line.strip()}`: {error}; quote words as in a shell"
        ) from None
    comment = next((i for i, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def _text(value: object) -> str:
    words = value if isinstance(value, list) else [value]
    return ",".join(_stem(str(word)) for word in words if word is not None)


def _filled(text: str, facts: dict[str, str]) -> str:
    """The text with its templates filled in; UsageError: a template names nothing."""

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name not in facts:
            raise UsageError(
                f"filling in `{text}`: there is nothing called {{{name}}} here"
                f"{did_you_mean(name, facts)}; wanted {{name}}, {{model}} or a flag of the command"
            )
        return facts[name]

    return _TEMPLATE.sub(fill, text)


def _default_name(words: Sequence[str]) -> str:
    """ "a/rnnlm.pb --cluster=k80x4 --seed=2" -> "rnnlm-k80x4-2"."""
    parts = []
    for word in words:
        flag, has_value, value = word.partition("=")
        if not word.startswith("-"):
            parts.append(_stem(word))
        elif flag.lstrip("-") not in (*OWN_FLAGS, *PLACE_FLAGS, "overwrite", "format"):
            parts.append(_stem(value) if has_value else flag.lstrip("-"))
    return "-".join(part for part in parts if part)


def _stem(path: str) -> str:
    """ "models/rnnlm.pb" -> "rnnlm"; a name without an ending, as "nmt:num_layers=2", as it is."""
    name = path.rstrip("/").rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return stem if dot and ending.isalnum() and not ending.isdigit() and stem else name


def _fitting(name: str) -> str:
    """The name as that of a folder, a long one with a digest; UsageError: nothing is left of it."""
    fit = _UNFIT.sub("_", name).strip("._-")
    if not fit:
        raise UsageError(f"naming a job {name!r}: wanted letters or digits; give it --name=…")
    if len(fit) > LONGEST_NAME:
        fit = f"{fit[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return fit


def fitting(
    command: str, own: Sequence[str], shared: Sequence[str], more_flags: Sequence[Flag]
) -> tuple[list[str], list[str]]:
    """A job's words with the shared flags that its command has, and the others' names.

    Args:
      own: words of the job's line; those of a --flagfile in them are shared.
      shared: words that hold for several jobs.
      more_flags: flags that every job may have.

    Raises:
      UsageError: a flagfile is a device.
      absl.flags.Error: one can't be opened.
    """
    known = {flag.name: flag for flag in (*COMMANDS[command].flags, *more_flags)}
    every = {**{flag.name: flag for each in COMMANDS.values() for flag in each.flags}, **known}
    kept, left_out = _without(shared, every, known)
    remaining = list(own)
    while remaining:
        word = remaining.pop(0)
        if word.lstrip("-").partition("=")[0] != "flagfile" or not word.startswith("-"):
            kept.append(word)
            continue
        file = [word] if "=" in word else [word, *remaining[:1]]
        del remaining[: len(file) - 1]
        words, names = _without(file, every, known)
        kept, left_out = kept + words, left_out + names
    return kept, list(dict.fromkeys(left_out))


def _without(
    words: Sequence[str], every: Mapping[str, Flag], known: Collection[str]
) -> tuple[list[str], list[str]]:
    """The words, flagfiles read, without flags that aren't known; and the names of these.

    Values are taken as they are: `parse` says what is wrong with one.
    """
    require_flagfiles(words)
    values = define(tuple(_of_any_value(flag) for flag in every.values()))
    others = values(["", *words], known_only=True)[1:]
    names = [name for name in every if values[name].present and name not in known]
    return [*given_flags(values, without=names), *others], names


def _of_any_value(flag: Flag) -> Flag:
    if flag.kind == "boolean":
        return dataclasses.replace(flag, default=None)
    return dataclasses.replace(flag, kind="multi", default=[])
