"""Names, options and sizes of the benchmark graphs, of catalogue.json; without TensorFlow."""

import dataclasses
from collections.abc import Mapping, Sequence

from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean
from graphs.host.text_table import json_beside

SIZES = ("published", "tiny")
MOST = 2**31 - 1
"""Of every value; more entries along one axis no kernel takes."""
MOST_OF = {
    **dict.fromkeys(("num_layers", "num_stages", "num_tables", "num_experts"), 1_000),
    "num_steps": 100_000,
}
"""Of values that multiply ops, or may: a graph of more would take days to build."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One benchmark graph.

    Attributes:
      module: the module of this package whose `build(settings)` makes it.
      values: {option: [its value at the published size, its value in tests]}.
      published_num_ops: op count in the literature for TensorFlow 1 (ColocRL, recalled); None
        where none is known.
      fixed: settings that a user can't change; they tell apart graphs that share a module.
    """

    module: str
    values: Mapping[str, Sequence[int]]
    published_num_ops: int | None = None
    fixed: Mapping[str, int] = dataclasses.field(default_factory=dict)


ENTRIES: Mapping[str, Entry] = {
    name: Entry(**{key: value for key, value in entry.items() if key != "note"})
    for name, entry in json_beside(__file__).items()
}

NAMES: tuple[str, ...] = tuple(ENTRIES)


def entry(name: str) -> Entry:
    """The benchmark graph of that name; UsageError where there is none."""
    if name not in ENTRIES:
        raise UsageError(
            f"looking up benchmark graph {name!r}: there is none of that name"
            + did_you_mean(name, ENTRIES)
            + f"; known are {', '.join(ENTRIES)}"
        )
    return ENTRIES[name]


def parse(spec: str) -> tuple[str, dict[str, int | str]]:
    """Splits "nmt:num_layers=4,batch_size=32" into a name and checked options.

    Raises:
      UsageError: the name or an option is unknown, or a value is no positive integer or more than
        its most (`size`: none of SIZES).
    """
    name, _, rest = spec.partition(":")
    entry(name)
    chosen: dict[str, int | str] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(
                f"reading benchmark graph {spec!r}: found {item!r}, wanted OPTION=VALUE, "
                f"as in {name}:batch_size=32"
            )
        chosen[key] = _checked(name, key, value)
    return name, chosen


def options(name: str, size: str = "published") -> Mapping[str, int | str]:
    """Option names and default values of a benchmark graph, `size` among them."""
    _checked(name, "size", size)
    which = SIZES.index(size)
    return {"size": size, **{key: both[which] for key, both in entry(name).values.items()}}


def resolve(name: str, size: str, chosen: Mapping[str, int | str]) -> dict[str, int]:
    """All settings of a graph: the size's defaults, overridden by what was chosen.

    Raises:
      UsageError: as in parse().
    """
    settings = {
        key: int(value) for key, value in options(name, size).items() if key != "size"
    } | dict(entry(name).fixed)
    for key, value in chosen.items():
        settings[key] = int(_checked(name, key, value))
    return settings


def _checked(name: str, key: str, value: int | str) -> int | str:
    known = ("size", *entry(name).values)
    if key not in known:
        raise UsageError(
            f"setting option {key!r} of benchmark graph {name!r}: it has none of that name"
            + did_you_mean(key, known)
            + f"; known are {', '.join(known)}, as in {name}:batch_size=32"
        )
    if key == "size":
        if value not in SIZES:
            raise UsageError(
                f"setting the size of benchmark graph {name!r}: found {value!r}, "
                f"wanted one of {', '.join(SIZES)}"
            )
        return value
    text, most = str(value), MOST_OF.get(key, MOST)
    # Python refuses to read numbers of thousands of digits.
    number = int(text[:20]) if text.isdecimal() else 0
    if not 1 <= number <= most:
        raise UsageError(
            f"setting {key} of benchmark graph {name!r}: found {text[:40]!r}, "
            f"wanted a positive integer, at most {most:,}"
        )
    return number
