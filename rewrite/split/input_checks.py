"""Compares what an op reads with what the op read that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphs.names import data_inputs, op_of
from rewrite.pass_base import RewriteError
from rewrite.split.meanings import Meaning
from rewrite.split.op_case import of_shard
from rewrite.split.op_view import Split
from rewrite.split.reading import Reading
from rewrite.split.same_op import same_array
from rewrite.split.states import SUM, WHOLE, State


class InputChecks:
    """Raises RewriteError for the first input that isn't what was decided."""

    def __init__(self, reading: Reading, states: Mapping[str, State]):
        """Begins.

        Args:
          reading: of the graph that was made.
          states: {tensor of the graph that it was made of: its state}.
        """
        self._reading, self._states = reading, states

    def copy_reads(self, tensors: Sequence[str], here: Any, shard: int, answer: Split) -> None:
        """A shard's copy of an op that read these tensors reads its parts of them, and numbers."""
        reading, inputs = self._reading, data_inputs(here)
        count = len(answer.inputs)
        for name in inputs[count:]:
            if not same_array(reading.said(name), reading.numbers_of(shard)):
                raise self._wrong(here.name, name, "its shard's numbers")
        pairs = zip(tensors, inputs[:count], answer.inputs, strict=True)
        for position, (tensor, new, state) in enumerate(pairs):
            entries = answer.shape_inputs.get(position)
            if not entries:
                rows = answer.row_inputs.get(position)
                first = 0 if rows is None else rows.size(sum(reading.sizes[:shard]))
                self.reads(here.name, new, tensor, state, shard, first)
                continue
            value = reading.facts.value(tensor)
            found = reading.said(new)
            wanted = None if value is None else of_shard(value, entries, reading.sizes[shard])
            if not same_array(found, wanted):
                raise self._wrong(here.name, new, f"{wanted} for input {position}, found {found}")

    def reads(
        self,
        reader: str,
        new: str,
        tensor: str,
        state: State,
        shard: int | None,
        first_row: int = 0,
    ) -> None:
        """An input is the tensor that it was, whole or the part of a shard.

        Args:
          reader: what reads it.
          new: the input.
          tensor: what it was.
          state: what it has to be of that.
          shard: whose reader this is; None of one for all.
          first_row: from which row it has to count, if it holds numbers of rows.
        """
        if state == WHOLE:
            wanted = Meaning(tensor)
        else:
            assert shard is not None
            wanted = Meaning(tensor, state, frozenset({shard}), first_row=first_row)
            if state == SUM and self._states[tensor] == WHOLE:
                # A whole tensor as terms of a sum: the first shard has all of it.
                wanted = Meaning(tensor, SUM, frozenset()) if shard else Meaning(tensor)
        found = self._reading.meaning(new)
        if state == WHOLE and isinstance(found, np.ndarray):  # a shard's own copy of a number
            found = wanted if same_array(found, self._reading.facts.value(tensor)) else found
        if state == WHOLE and shard is not None:
            siblings = self._reading.copies.get(op_of(tensor))
            if siblings and op_of(new) in siblings:
                wanted = wanted if op_of(new) == siblings[shard] else Meaning("")
        if not isinstance(found, Meaning) or found != wanted:
            part = "all" if shard is None or state == WHOLE else f"part {shard}"
            raise self._wrong(reader, new, f"{part} of {tensor!r}")

    def _wrong(self, reader: str, new: str, wanted: str) -> RewriteError:
        where = self._reading.where
        return RewriteError(f"reading {reader!r} of {where}: it reads {new!r}, wanted {wanted}")
