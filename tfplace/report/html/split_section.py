"""How the step was split, and what each device does of each shard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfplace.choosing.split_sentence import split_proof_sentence
from tfplace.report.html.elements import facts, paragraph, section, table, text
from tfplace.report.report import Report
from tfplace.report.split_facts import split_sentences
from tfplace.units_text import share_text


def split_section(report: Report) -> str:
    """The section of the page; empty for a step that is whole."""
    if report.split is None:
        return ""
    rows = [(name, text(what)) for name, what in split_sentences(report.split)]
    if report.verified.split is not None:
        rows.append(("proven", text(split_proof_sentence(report.verified.split))))
    kind = report.parallelism
    return section(
        "split",
        "How the step is split",
        paragraph(kind["sentence"]) if kind else "",
        _shares(kind) if kind else "",
        facts(rows),
    )


def _shares(kind: Mapping[str, Any]) -> str:
    """What each device has of each shard's work, as shares of all work."""
    head = ["of all work", *(f"shard {m}" for m in range(len(kind["shares"][0]["shards"])))]
    rows = [
        [text(row["device"]), *map(_cell, (*row["shards"], row["whole"]))]
        for row in kind["shares"]
        if row["whole"] or any(row["shards"])
    ]
    return table((*head, "whole"), rows)


def _cell(share: float) -> str:
    return share_text(share) if share >= 0.005 else "·" if share > 0 else ""
