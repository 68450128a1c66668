"""Flags of a command as the options of the work behind it."""

import dataclasses
import shlex
from collections.abc import Collection, Sequence
from typing import Any

from absl import flags

from graphs.errors import UsageError
from graphs.host.compiled import cache_directory
from graphs.host.did_you_mean import did_you_mean
from graphs.loading.load_options import LoadOptions
from graphs.placement_file import ops_left_whole, sums_in_turn
from rewrite.split.reading.batch_axes import read_batch_axes
from tfplace.preparing.options import AUTO, OptimizeOptions, ProblemOptions

_SHARD_DIGITS = 8
"""--shards has fewer: where each shard may lie is listed before the size of the batch is known."""


def problem_options(
    model: str, values: flags.FlagValues, searches_shards: bool = False
) -> ProblemOptions:
    """What --cluster, --fetch, --pin and their like say; a command may lack some of them.

    Args:
      searches_shards: whether --shards=auto is understood, and a step may be split unasked.

    Raises:
      UsageError: a flag says nothing that could be meant, or nothing to this command.
      PlacementError: --placement names no placement file, and the step is split as it says.
    """
    shards = num_shards(shards_asked(values), searches_shards)
    batch_axes = read_batch_axes(_of(values, "batch_axis", []))
    if batch_axes and shards == 1 and not searches_shards:
        raise UsageError(
            f"reading --batch_axis={values.batch_axis[0]}: it says how a step is split, found "
            "--shards=1, which leaves it whole; give --shards a number above 1, or no --batch_axis"
        )
    cuts_weights = _of(values, "cut", "batch") == "weights"
    if cuts_weights and (shards in (1, AUTO) or batch_axes):
        raise UsageError(
            f"reading --cut=weights: found --shards={'auto' if shards == AUTO else shards}"
            f"{' and --batch_axis' if batch_axes else ''}; wanted --shards with the number of "
            "pieces, above 1, and no --batch_axis"
        )
    placement = _of(values, "placement", None)
    return ProblemOptions(
        model=model,
        load=load_options(values),
        pins=_of(values, "pin", []),
        fed=_of(values, "feed", None),
        cost_cache=cost_cache_directory(values),
        num_shards=shards,
        cuts_weights=cuts_weights,
        batch_axes=batch_axes,
        left_whole=ops_left_whole(placement) if placement and shards > 1 else frozenset(),
        # Two terms are one sum either way.
        sums_in_turn=sums_in_turn(placement) if placement and shards > 2 else None,
        # What asks for no new order, and searches nothing, is about the model as it is.
        as_written=not searches_shards and shards == 1 and _of(values, "order", "") == "none",
        **_same(ProblemOptions, values, {"cost_cache"}),
    )


def num_shards(text: str, may_be_auto: bool = False) -> int:
    """What --shards says: a number of at least 1, or AUTO.

    Raises:
      UsageError: it is neither, or AUTO where nothing is searched.
    """
    if text == "auto" and may_be_auto:
        return AUTO
    if text.isdecimal() and len(text) < _SHARD_DIGITS and int(text) >= 1:
        return int(text)
    wanted = "a whole number of at least 1"
    if len(text) >= _SHARD_DIGITS:
        wanted += " and below 10,000,000"
    if may_be_auto:
        wanted += ", or auto"
    elif text == "auto":
        wanted += "; `tfplace optimize --shards=auto` finds which one is best"
    raise UsageError(f"reading --shards={text}: wanted {wanted}")


def shards_asked(values: flags.FlagValues) -> str:
    """--shards; if it is not given, 1 for what searches a single problem, or nothing."""
    if "shards" not in values:
        return "1"
    searches_one = (
        _of(values, "algorithm", "auto") != "auto"
        or _of(values, "policy", None) is not None
        or _of(values, "checkpoint_dir", None) is not None
        or _of(values, "evaluator", "auto") == "measure"
    )
    text: str = values.shards
    return "1" if searches_one and not values["shards"].present else text


def cost_cache_directory(values: flags.FlagValues) -> str | None:
    """Where costs are kept between runs, None where the user wants no cache."""
    if not _of(values, "cost_cache", True):
        return None
    return _of(values, "cost_cache_dir", None) or str(cache_directory())


def load_options(values: flags.FlagValues) -> LoadOptions:
    """How the run is found in the model; UsageError: an --input_shape is not NAME=2,3."""
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
        problem=problem_options(model, values, searches_shards=True),
        emit=_forms(values.emit),
        command=shlex.join(["tfplace", "optimize", model, *given_flags(values)]),
        **_same(OptimizeOptions, values, {"emit"}),
    )


def solve_options(problem: str, values: flags.FlagValues) -> OptimizeOptions:
    """All flags of `tfplace solve` that say how it searches."""
    return OptimizeOptions(ProblemOptions(problem), **_same(OptimizeOptions, values))


def _forms(text: str) -> frozenset[str]:
    """What --emit asks for; UsageError: an unknown form, or none."""
    from rewrite.emit_forms import FORMS

    forms = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [form for form in forms if form not in FORMS]
    if forms and not unknown:
        return frozenset(forms)
    meant = [f"there is no form {form!r}{did_you_mean(form, FORMS)}; " for form in unknown[:1]]
    raise UsageError(
        f"reading --emit={text}: {''.join(meant)}wanted one or more of {', '.join(FORMS)}"
    )


def given_flags(values: flags.FlagValues, without: Collection[str] = ()) -> list[str]:
    """The flags that were given, as words, whether they came from a line or a file."""
    given = [values[name] for name in values if values[name].present and name not in without]
    return [word for flag in given for word in flag.serialize().splitlines()]


def split_names(text: str, flag: str) -> list[str]:
    """ "A,B:x=1,y=2,C" -> ["A", "B:x=1,y=2", "C"]: an option belongs to the name before it.

    Raises:
      UsageError: nothing is named.
    """
    names: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if names and "=" in part and ":" not in part and ":" in names[-1]:
            names[-1] += f",{part}"
        elif part:
            names.append(part)
    if not names:
        raise UsageError(f"reading {flag}: found nothing; wanted names with commas between them")
    return names


def whole_numbers(words: Sequence[str], flag: str) -> list[int]:
    """Seeds, as numbers; UsageError: one of them is no number of at least 0."""
    for word in words:
        if not word.isdecimal():  # isdigit() takes "²" too, int() doesn't
            raise UsageError(f"reading {flag}: {word!r} is no whole number; wanted 1,2,3")
    return [int(word) for word in words]


def _same(
    options: type[OptimizeOptions] | type[ProblemOptions],
    values: flags.FlagValues,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """{field: value} of the flags that are called as fields of the options are."""
    names = {field.name for field in dataclasses.fields(options)} - {*without}
    return {name: values[name].value for name in names if name in values}


def _of(values: flags.FlagValues, name: str, default: Any) -> Any:
    return values[name].value if name in values else default
