"""Names, options and sizes of the benchmark graphs; imports no TensorFlow, so it is cheap."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean

SIZES = ("published", "tiny")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One benchmark graph.

    Attributes:
      module: the module of this package whose `build(settings)` makes it.
      published: option values at the published size.
      tiny: option values for tests; the same keys.
      published_num_ops: op count in the literature for TensorFlow 1 (ColocRL;
        `tfplace/docs/published.md` marks it "memory"), None where none is known.
      fixed: settings that a user can't change; they tell apart graphs that share a module.
    """

    module: str
    published: Mapping[str, int]
    tiny: Mapping[str, int]
    published_num_ops: int | None = None
    fixed: Mapping[str, int] = dataclasses.field(default_factory=dict)


ENTRIES: Mapping[str, Entry] = {
    "rnnlm": Entry(
        "rnnlm",
        # 10,000 words: Penn Treebank, whose full softmax is what Zaremba et al. train. The
        # billion-word vocabulary needs a sampled softmax, whose candidate sampler runs on CPU only.
        {
            "batch_size": 64,
            "num_layers": 2,
            "hidden_size": 2048,
            "num_steps": 40,
            "vocab_size": 10_000,
        },
        {"batch_size": 4, "num_layers": 2, "hidden_size": 8, "num_steps": 3, "vocab_size": 20},
        published_num_ops=8_943,
    ),
    "nmt": Entry(
        "nmt",
        # 50 steps: the longest sentences that Luong et al. (2015) train on.
        {
            "batch_size": 64,
            "num_layers": 2,
            "hidden_size": 1024,
            "num_steps": 50,
            "vocab_size": 30_000,
        },
        {"batch_size": 4, "num_layers": 2, "hidden_size": 8, "num_steps": 3, "vocab_size": 20},
        published_num_ops=22_097,
    ),
    "inception_v3": Entry(
        "inception_v3",
        {
            "batch_size": 32,
            "image_size": 299,
            "num_classes": 1000,
            "width_divisor": 1,
            "max_repeats": 4,
        },
        {
            "batch_size": 2,
            "image_size": 75,
            "num_classes": 10,
            "width_divisor": 16,
            "max_repeats": 1,
        },
        published_num_ops=31_180,
    ),
    "cifar10": Entry(
        "cifar10",
        {"batch_size": 128, "image_size": 24, "num_classes": 10, "width_divisor": 1},
        {"batch_size": 4, "image_size": 8, "num_classes": 10, "width_divisor": 8},
    ),
    **{
        f"resnet{depth}": Entry(
            "resnet",
            {
                "batch_size": 32,
                "image_size": 224,
                "num_classes": 1000,
                "width_divisor": 1,
                "max_repeats": 36,
            },
            {
                "batch_size": 2,
                "image_size": 32,
                "num_classes": 10,
                "width_divisor": 16,
                "max_repeats": repeats,
            },
            fixed={"depth": depth},
        )
        for depth, repeats in ((152, 2), (50, 1))
    },
    "nasnet": Entry(
        "nasnet",
        {
            "batch_size": 32,
            "num_layers": 4,
            "hidden_size": 1056,
            "num_stages": 3,
            "stem_filters": 32,
            "image_size": 224,
            "num_classes": 1000,
        },
        {
            "batch_size": 2,
            "num_layers": 1,
            "hidden_size": 48,
            "num_stages": 1,
            "stem_filters": 4,
            "image_size": 32,
            "num_classes": 10,
        },
    ),
    "transformer": Entry(
        "transformer",
        {
            "batch_size": 32,
            "num_layers": 12,
            "hidden_size": 768,
            "num_steps": 128,
            "vocab_size": 30_522,
            "num_masked": 20,
        },
        {
            "batch_size": 2,
            "num_layers": 2,
            "hidden_size": 8,
            "num_steps": 6,
            "vocab_size": 20,
            "num_masked": 2,
        },
    ),
    "dlrm": Entry(
        "dlrm",
        {
            "batch_size": 2048,
            "hidden_size": 128,
            "vocab_size": 10_131_227,
            "num_tables": 26,
            "width_divisor": 1,
        },
        {
            "batch_size": 4,
            "hidden_size": 4,
            "vocab_size": 50,
            "num_tables": 8,
            "width_divisor": 64,
        },
    ),
    "moe": Entry(
        "moe",
        {
            "batch_size": 32,
            "num_layers": 6,
            "hidden_size": 1024,
            "num_steps": 128,
            "vocab_size": 32_000,
            "num_experts": 16,
            "inner_size": 4096,
        },
        {
            "batch_size": 2,
            "num_layers": 2,
            "hidden_size": 8,
            "num_steps": 8,
            "vocab_size": 20,
            "num_experts": 4,
            "inner_size": 16,
        },
    ),
}

NAMES: tuple[str, ...] = tuple(ENTRIES)


def entry(name: str) -> Entry:
    """The catalogue's entry; UsageError for an unknown name."""
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
      UsageError: the name or an option is unknown, or a value is no positive integer (`size`:
        none of SIZES).
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
    known = entry(name)
    _checked(name, "size", size)
    return {"size": size, **(known.tiny if size == "tiny" else known.published)}


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
    known = ("size", *entry(name).published)
    if key not in known:
        raise UsageError(
            f"setting option {key!r} of benchmark graph {name!r}: it has none of that name"
            + did_you_mean(key, known)
            + f"; known are {', '.join(known)}"
        )
    if key == "size":
        if value not in SIZES:
            raise UsageError(
                f"setting the size of benchmark graph {name!r}: found {value!r}, "
                f"wanted one of {', '.join(SIZES)}"
            )
        return value
    text = str(value)
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(
            f"setting {key} of benchmark graph {name!r}: found {text!r}, wanted a positive integer"
        )
    return int(text)
