"""The links of a cluster file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.cluster import TransferWork
from graphs.clusters.json_values import number_of, require_keys, text_of
from graphs.errors import ClusterError
from graphs.host.did_you_mean import did_you_mean
from graphs.op_graph import FloatArray

BUSY_FIELD = {
    "sender_busy_seconds": "sender_seconds",
    "sender_busy_seconds_per_byte": "sender_seconds_per_byte",
    "receiver_busy_seconds": "receiver_seconds",
    "receiver_busy_seconds_per_byte": "receiver_seconds_per_byte",
}
_REQUIRED_LINK_KEYS = ("bytes_per_second", "latency_seconds")
DEFAULT_LINK_KEYS = (*_REQUIRED_LINK_KEYS, *BUSY_FIELD)
LINK_KEYS = ("from", "to", *DEFAULT_LINK_KEYS)


def links_of(
    value: Mapping[str, Any], names: Sequence[str]
) -> tuple[FloatArray, FloatArray, TransferWork | None]:
    """f8[D, D] latency, diagonal 0; f8[D, D] bytes per second, diagonal inf; transfers' work."""
    figures = np.full((len(DEFAULT_LINK_KEYS), len(names), len(names)), np.nan)
    entries = value.get("links", [])
    if not isinstance(entries, list):
        raise ClusterError("'links' has to be a list")
    for position, entry in enumerate(entries):
        where = f"link {position}"
        require_keys(where, entry, LINK_KEYS, required=("from", "to", *_REQUIRED_LINK_KEYS))
        ends = [text_of(where, entry, key, "") for key in ("from", "to")]
        for end in ends:
            if end not in names:
                raise ClusterError(
                    f"{where} names device {end!r}, which there is not" + did_you_mean(end, names)
                )
        source, target = (names.index(end) for end in ends)
        if source == target:
            raise ClusterError(f"{where} leads from {ends[0]!r} to itself")
        if not np.isnan(figures[0, source, target]):
            raise ClusterError(f"{where} is a second link from {ends[0]!r} to {ends[1]!r}")
        figures[:, source, target] = link_figures(where, entry)
    same = np.arange(len(names))
    figures[:, same, same] = np.where(np.arange(len(figures)) == 0, np.inf, 0.0)[:, None]
    missing = np.isnan(figures[0])
    if "default_link" in value:
        where = "'default_link'"
        require_keys(where, value["default_link"], DEFAULT_LINK_KEYS, _REQUIRED_LINK_KEYS)
        figures[:, missing] = np.array(link_figures(where, value["default_link"]))[:, None]
    elif missing.any():
        source, target = np.argwhere(missing)[0]
        raise ClusterError(
            f"no link leads from {names[source]!r} to {names[target]!r}; list it under 'links' "
            "or give a 'default_link'"
        )
    rate, latency, *busy = figures
    return latency, rate, TransferWork(*busy) if np.any(busy) else None


def link_figures(where: str, entry: Mapping[str, Any]) -> list[float]:
    """The figures of a link, in the order of DEFAULT_LINK_KEYS."""
    rate, *others = DEFAULT_LINK_KEYS
    return [
        number_of(where, entry, rate, 0.0),
        *(number_of(where, entry, key, 0.0, zero=True) for key in others),
    ]
