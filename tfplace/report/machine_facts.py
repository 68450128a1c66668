"""What a run knew of its machine, and how: no assumed figure is passed off as measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphs.cluster import Cluster

MEASURED, PARTLY, ASSUMED = "measured", "partly measured", "assumed"
_SAYS = {
    MEASURED: "devices and links as they were measured",
    PARTLY: "devices as measured; links and what transfers take of their ends as assumed",
    ASSUMED: "devices and links as assumed, nothing of them was measured",
}


def figures_of(cluster: Cluster) -> str:
    """Which of a cluster's figures were measured."""
    if not cluster.origin:
        return ASSUMED
    return PARTLY if cluster.transfer_work is None else MEASURED


def machine_facts(cluster: Cluster, has_forgotten: bool = False) -> Mapping[str, Any]:
    """`figures`, of these words; `taught` by earlier runs; and whether that was forgotten."""
    return {
        "figures": figures_of(cluster),
        "taught": dict(cluster.taught),
        "forgotten": has_forgotten,
    }


def figures_text(figures: str) -> str:
    """What that word means."""
    return _SAYS[figures]


def machine_text(facts: Mapping[str, Any]) -> str:
    """One line of them."""
    said = figures_text(facts["figures"])
    if facts["forgotten"]:
        return f"{said}; what earlier runs taught no longer fits and is forgotten"
    if facts["taught"]:
        return f"{said}, corrected by what earlier runs taught"
    return said
