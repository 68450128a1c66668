"""What a search has found, judged with the order that each placement gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tfplace.choosing.baselines import Candidate
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.order.model_order import ModelOrder
from tfplace.preparing.prepare import PreparedModel

GIVEN = "given"


def in_order(prepared: PreparedModel, searched: Searched) -> Searched:
    """The same with the outcomes that the placements have in order; baselines stay as they were.

    The given placement stays as the model came, without an order.
    """
    order = prepared.order
    if not isinstance(order, ModelOrder):
        return searched

    def each(candidates: Sequence[Candidate]) -> list[Candidate]:
        return [
            candidate
            if candidate.name == GIVEN
            else dataclasses.replace(
                candidate, outcome=order.ordered(prepared, candidate.device_of_op).outcome
            )
            for candidate in candidates
        ]

    return dataclasses.replace(
        searched, candidates=each(searched.candidates), fewer=each(searched.fewer)
    )
