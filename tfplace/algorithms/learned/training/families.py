"""Families of benchmark graphs: variations of one model, split for training and for judging."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.errors import UsageError
from graphs.host.did_you_mean import did_you_mean
from graphs.host.text_table import json_beside

TEST_SHARE = 0.25

# Values of the zoo's options, small enough that a graph is prepared in about two seconds. The
# options say what differs: for cifar10 only sizes do, for the others the shape of the graph too.
FAMILIES: Mapping[str, Mapping[str, Sequence[int]]] = json_beside(__file__)


@dataclasses.dataclass(frozen=True)
class Split:
    """Which graphs teach and which judge."""

    train: tuple[str, ...]  # benchmark graphs as "rnnlm:num_steps=4,..."
    test: tuple[str, ...]  # such graphs, none of them in `train`


def split_family(family: str, num_graphs: int, seed: int) -> Split:
    """Draws distinct variations; the last quarter, at least one, is for judging.

    Args:
      family: a name of FAMILIES.
      num_graphs: 2 to the number of variations there are.

    Raises:
      UsageError: no such family, or not that many graphs.
    """
    if family not in FAMILIES:
        raise UsageError(
            f"reading --family={family}: there is no such family{did_you_mean(family, FAMILIES)} "
            f"(families: {', '.join(FAMILIES)})"
        )
    options = FAMILIES[family]
    variations = list(itertools.product(*options.values()))
    if not 2 <= num_graphs <= len(variations):
        raise UsageError(
            f"reading --num_graphs={num_graphs}: the family {family} has 2 to {len(variations)} "
            "graphs; choose a number between"
        )
    drawn = np.random.default_rng(seed).permutation(len(variations))[:num_graphs]
    specs = tuple(_spec(family, dict(zip(options, variations[i], strict=True))) for i in drawn)
    num_test = max(1, round(num_graphs * TEST_SHARE))
    return Split(specs[:-num_test], specs[-num_test:])


def _spec(family: str, chosen: Mapping[str, int]) -> str:
    return f"{family}:" + ",".join(f"{name}={value}" for name, value in chosen.items())
