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


def machine_facts(cluster: Cluster, has_forgotten: bool = False) -> Mapping[str, Any]:
    """`figures`, of these words; `taught` by earlier runs; and whether that was forgotten."""
    figures = ASSUMED
    if cluster.origin:
        figures = PARTLY if cluster.transfer_work is None else MEASURED
    return {"figures": figures, "taught": dict(cluster.taught), "forgotten": has_forgotten}


def machine_text(facts: Mapping[str, Any]) -> str:
    """One line of them."""
    said = _SAYS[facts["figures"]]
    if facts["forgotten"]:
        return f"{said}; what earlier runs taught no longer fits and is forgotten"
    if facts["taught"]:
        return f"{said}, corrected by what earlier runs taught"
    return said
