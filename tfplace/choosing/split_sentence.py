"""What was proven of a split step, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewrite.split.prove_loads import LOADS


def split_proof_sentence(proof: Mapping[str, Any], run: str = "") -> str:
    """What was proven, for a person; `run` is what is said of comparing the run besides."""
    if proof["distinct_ops"] is None:
        return "the split step has the structure that was decided; interrupted before more"
    joints = "joins, sums and cuts stand where they should"
    text = (
        f"{proof['proven_ops']:,} of {proof['distinct_ops']:,} distinct split ops give in "
        "parts what they give whole"
    )
    if smaller := proof["smaller_ops"]:
        text += f" ({smaller:,} of them tried in few shards of few entries, with narrow weights)"
    text += f"; {joints}"
    if norms := proof["norms"]["distinct"]:
        text += f"; {proof['norms']['proven']:,} of {norms:,} batch normalisations are as fused"
    if proof["loads"] != LOADS:
        text += f"; {proof['loads']}"
    if proof["unproven"]:
        return f"NOT PROVEN: {proof['unproven']}. {text[0].upper()}{text[1:]}"
    if proof["run"].startswith("not run"):
        return text if proof["run"] == run else f"{text}; whole steps {proof['run']}"
    return f"{text}; two steps in float64: {proof['run']}, {proof['compared']:,} values"
