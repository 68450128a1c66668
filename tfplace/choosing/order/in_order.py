"""What a search has found, judged with the order that each placement gets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tfplace.choosing.baselines import GIVEN, Candidate
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.order.model_order import ModelOrder
from tfplace.preparing.prepare import PreparedModel

WITHIN, MOST = 1.4, 3
"""Of the best without an order, and so many placements: the others are left as they are, since
hardly any order gains so much, and finding one takes seconds for a large graph."""


def in_order(prepared: PreparedModel, searched: Searched) -> Searched:
    """The same with the outcomes that the placements have in order; baselines stay as they were.

    The given placement stays as the model came, without an order, and so does what is too slow.
    """
    order = prepared.order
    if not isinstance(order, ModelOrder):
        return searched

    everything = [*searched.candidates, *searched.fewer]
    steps = sorted({each.step_seconds for each in everything if each.name != GIVEN})
    limit = min(steps[0] * WITHIN, steps[:MOST][-1])

    def each(candidates: Sequence[Candidate]) -> list[Candidate]:
        return [
            candidate
            if candidate.name == GIVEN or limit < candidate.step_seconds < math.inf
            else dataclasses.replace(
                candidate, outcome=order.ordered(prepared, candidate.device_of_op).outcome
            )
            for candidate in candidates
        ]

    return dataclasses.replace(
        searched, candidates=each(searched.candidates), fewer=each(searched.fewer)
    )
