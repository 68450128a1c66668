"""Flags of a command as the options of the work behind it."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean
from graphs.loading.load_options import LoadOptions
from tfplace.preparing.options import OptimizeOptions, ProblemOptions


def problem_options(model: str, values: flags.FlagValues) -> ProblemOptions:
    """What --cluster, --fetch, --pin and their like say; a command may lack some of them."""
    return ProblemOptions(
        model=model,
        load=load_options(values),
        cluster=values.cluster,
        pins=_of(values, "pin", []),
        no_split=_of(values, "no_split", []),
        keep_devices=_of(values, "keep_devices", False),
        free_gradients=_of(values, "free_gradients", True),
        memory_reserve=_of(values, "memory_reserve", 0.1),
        feed_file=_of(values, "feed", None),
        seed=_of(values, "seed", 0),
        cost_cache=cost_cache_directory(values),
    )


def cost_cache_directory(values: flags.FlagValues) -> str | None:
    """Where costs are kept between runs, None where the user wants no cache."""
    from tfplace.preparing.cost_cache import default_directory

    if not _of(values, "cost_cache", True):
        return None
    return _of(values, "cost_cache_dir", None) or str(default_directory())


def load_options(values: flags.FlagValues) -> LoadOptions:
    """How the run is found in the model.

    Raises:
      UsageError: an --input_shape is not NAME=2,3.
    """
    shapes = {}
    for text in values.input_shape:
        name, separator, dims = text.rpartition("=")
        try:
            if not separator or not name:
                raise ValueError
            shapes[name] = tuple(int(d) for d in dims.split(",") if d)
        except ValueError:
            raise UsageError(
                f"reading --input_shape={text}: wanted NAME=2,3 with whole numbers"
            ) from None
    try:
        return LoadOptions(
            fetch=tuple(values.fetch),
            signature=values.signature,
            mode=values.mode,
            batch_size=values.batch_size,
            input_shape=shapes,
            tags=tuple(tag.strip() for tag in values.tags.split(",") if tag.strip()),
        )
    except ValueError as error:
        raise UsageError(f"reading the flags: {error}") from None


def optimize_options(model: str, values: flags.FlagValues) -> OptimizeOptions:
    """All flags of `tfplace optimize`."""
    return OptimizeOptions(
        problem=problem_options(model, values),
        output_dir=values.output_dir,
        overwrite=values.overwrite,
        algorithm=values.algorithm,
        evaluator=values.evaluator,
        budget_seconds=values.budget_seconds,
        max_trials=values.max_trials,
        seed=values.seed,
        policy=values.policy,
        checkpoint_dir=values.checkpoint_dir,
        dump_problem=values.dump_problem,
        logdir=values.logdir,
        emit=_forms(values.emit),
        command=command_line("optimize", [model], values),
    )


def _forms(text: str) -> frozenset[str]:
    """What --emit asks for.

    Raises:
      UsageError: an unknown form, or none.
    """
    from rewrite.emit_forms import FORMS

    forms = [word.strip() for word in text.split(",") if word.strip()]
    for form in forms:
        if form not in FORMS:
            raise UsageError(
                f"reading --emit={text}: there is no form {form!r}{did_you_mean(form, FORMS)}; "
                f"wanted one or more of {', '.join(FORMS)}"
            )
    if not forms:
        raise UsageError(f"reading --emit={text}: wanted one or more of {', '.join(FORMS)}")
    return frozenset(forms)


def command_line(name: str, arguments: Sequence[str], values: flags.FlagValues) -> str:
    """The command that does the same again, whether its flags came from a line or a file."""
    words = ["tfplace", name, *arguments]
    for flag in (values[key] for key in values if values[key].present):
        if flag.name != "flagfile":
            words += flag.serialize().splitlines()
    return shlex.join(words)


class LogLines(logging.Handler):
    """Log records as lines on what is sys.stderr at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"tfplace: {record.getMessage()}", file=sys.stderr, flush=True)


def quiet_tensorflow(verbosity: int) -> None:
    """Log lines as --verbosity says: TensorFlow's own only from 2 on. Call it before its import."""
    # Whatever this process does on a GPU must leave memory to the measuring one.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if verbosity < 2:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("GLOG_minloglevel", "3")
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
    for package in ("graphs", "rewrite", "tfplace"):
        logger = logging.getLogger(package)
        logger.handlers = [LogLines()]
        logger.setLevel(
            logging.INFO if verbosity > 0 else logging.WARNING if verbosity == 0 else logging.ERROR
        )


def print_json(value: Any) -> None:
    """The one result on stdout."""
    json.dump(value, sys.stdout, indent=2, allow_nan=False)
    print()


def model_of(arguments: Sequence[str]) -> str:
    """The one positional argument."""
    return arguments[0]


def _of(values: flags.FlagValues, name: str, default: Any) -> Any:
    return values[name].value if name in values else default
