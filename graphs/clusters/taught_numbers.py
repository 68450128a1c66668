"""What a cluster file says that real runs have taught of the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from graphs.cluster import Interval
from graphs.errors import ClusterError
from graphs.machine_numbers import is_name

WANTED = "wanted {number: [value, low, high]} with 0 <= low <= value <= high, as optimize keeps it"


def taught_of(cluster: Mapping[str, Any]) -> Mapping[str, Interval]:
    """{number: value, low, high} of a parsed cluster file; empty where there is none.

    Raises:
      ClusterError: it is something else.
    """
    taught = cluster.get("taught", {})
    if not isinstance(taught, Mapping):
        raise ClusterError(f"'taught' is {taught!r}; {WANTED}")
    for name, values in taught.items():
        if not (is_name(name) and _is_interval(values, is_factor=not name.endswith("_seconds"))):
            raise ClusterError(f"'taught' says {name!r}: {values!r}; {WANTED}")
    return {name: (float(v), float(low), float(high)) for name, (v, low, high) in taught.items()}


def _is_interval(values: Any, is_factor: bool) -> bool:
    """A factor is never 0."""
    if not isinstance(values, list) or len(values) != 3:
        return False
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in values):
        return False
    value, low, high = values
    return 0.0 <= low <= value < high and not (is_factor and low == 0.0)
