"""Compares each op of an unsplit step with what it has become in the split one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from graphs.building.op_outputs import op_definition
from graphs.names import data_inputs, op_of, parse_input, with_index
from rewrite.pass_base import RewriteError
from rewrite.split.decide import Decisions
from rewrite.split.meanings import Meaning
from rewrite.split.op_cases import bodies_of, of_shard
from rewrite.split.op_view import Split
from rewrite.split.states import WHOLE, State
from rewrite.split.step_reading import StepReading


class OpChecks:
    """Raises RewriteError for the first op that isn't what was decided."""

    def __init__(self, decisions: Decisions, reading: StepReading):
        self._decisions = decisions
        self._reading = reading

    def op(self, node: Any) -> None:
        """Raises RewriteError unless an op has become what was decided."""
        name, reading = node.name, self._reading
        if name in reading.stands_in:
            self._shape(node)
        elif name not in reading.copies:
            self._same(node, reading.nodes[name], None, {})
            for old, new in zip(data_inputs(node), data_inputs(reading.nodes[name]), strict=True):
                self._reads(name, new, old, WHOLE, None)
        else:
            answer = self._decisions.answer_of_op[name]
            assert isinstance(answer, Split)
            if op_definition(node.op, name).is_stateful and node.op not in _READS:
                raise RewriteError(f"reading a split step: {name!r} has effects, and has copies")
            if name in reading.nodes:
                self._same(node, reading.nodes[name], None, {})
            for shard, copy in enumerate(reading.copies[name]):
                self._same(node, reading.nodes[copy], shard, answer.attrs, _of_functions(answer))
                self._copy_inputs(node, reading.nodes[copy], shard, answer)

    def fetch(self, before: str, after: str) -> None:
        """Raises RewriteError unless a fetch gives what it gave, or runs what it ran."""
        if ":" in before:
            self._reads("a fetch", after, before, WHOLE, None)
            return
        ops = self._ops_for(before, None)
        node = self._reading.nodes.get(after)
        waits = [] if node is None or node.op != "NoOp" else list(node.input)
        if {after} != ops and set(waits) != {f"^{op}" for op in ops}:
            raise RewriteError(f"reading a split step: fetching {after!r} doesn't run {before!r}")

    def _same(
        self,
        node: Any,
        here: Any,
        shard: int | None,
        attrs: Mapping[str, Any],
        own: Collection[str] = (),
    ) -> None:
        """The same op type, attributes but for those that were decided, and control edges."""
        without = {*_DERIVED, *own}
        wanted = {key: value for key, value in node.attr.items() if key not in without}
        wanted.update(attrs)
        beside = [v.decode().removeprefix("loc:@") for v in node.attr["_class"].list.s] if (
            "_class" in node.attr) else []  # fmt: skip
        names = {name for each in beside for name in self._beside(each, shard)}
        found = {key: value for key, value in here.attr.items() if key not in without}
        there = here.attr["_class"].list.s if "_class" in here.attr else []
        if (
            here.op != node.op
            or found.keys() != wanted.keys()
            or any(_bytes(found[key]) != _bytes(wanted[key]) for key in found)
            or {v.decode().removeprefix("loc:@") for v in there} != names
        ):
            raise RewriteError(f"reading {here.name!r} of the split step: it is another op")
        self._waits(node, here, shard)
        more = len(data_inputs(here)) - len(data_inputs(node))
        if more and (more != 1 or not own):  # functions of a shard may read its sizes
            raise RewriteError(f"reading {here.name!r} of the split step: it reads more or less")

    def _waits(self, node: Any, here: Any, shard: int | None) -> None:
        """The same control edges."""
        controls = {name for name in here.input if name.startswith("^")}
        waits = {name[1:] for name in node.input if name.startswith("^")}
        if controls != {f"^{op}" for wait in waits for op in self._ops_for(wait, shard)}:
            raise RewriteError(f"reading {here.name!r} of the split step: it waits for other ops")

    def _beside(self, name: str, shard: int | None) -> list[str]:
        """The ops that one may have to lie beside; a whole one can't beside all copies."""
        copies = self._reading.copies.get(name)
        if copies is None:
            return [name]
        return [] if shard is None else [copies[shard]]

    def _ops_for(self, name: str, shard: int | None) -> set[str]:
        """What an op waits for that waited for another one."""
        copies = self._reading.copies.get(name)
        if copies is None:
            return set(self._reading.stands_in.get(name, [name])[:1])
        return set(copies) if shard is None else {copies[shard]}

    def _copy_inputs(self, node: Any, here: Any, shard: int, answer: Split) -> None:
        read = data_inputs(here)[: len(answer.inputs)]
        pairs = zip(data_inputs(node), read, answer.inputs, strict=True)
        for position, (old, new, state) in enumerate(pairs):
            entries = answer.shape_inputs.get(position)
            if not entries:
                self._reads(here.name, new, old, state, shard)
                continue
            value = self._decisions.values.value(with_index(parse_input(old).tensor))
            found = self._reading.said(new)
            wanted = None if value is None else of_shard(value, entries, self._reading.sizes[shard])
            if wanted is None or found is None or not _same_array(found, wanted):
                raise RewriteError(
                    f"reading {here.name!r} of the split step: input {position} holds {found}, "
                    f"wanted {wanted}"
                )

    def _reads(self, reader: str, new: str, old: str, state: State, shard: int | None) -> None:
        """An input is the tensor that it was, whole or the part of a shard."""
        tensor = with_index(parse_input(old).tensor)
        wanted = Meaning(tensor)
        if state != WHOLE:
            assert shard is not None
            wanted = Meaning(tensor, state, frozenset({shard}))
        found = self._reading.meaning(new)
        siblings = self._reading.copies.get(op_of(old))
        if siblings and state == WHOLE and shard is not None and op_of(new) in siblings:
            wanted = wanted if op_of(new) == siblings[shard] else Meaning("")
        if not isinstance(found, Meaning) or found != wanted:
            part = "all" if shard is None or state == WHOLE else f"part {shard}"
            raise RewriteError(
                f"reading {reader!r} of the split step: it reads {new!r}, wanted {part} of "
                f"{tensor!r}"
            )

    def _shape(self, node: Any) -> None:
        """What stands for an op that asks for a shape says the unsplit tensor's, as late as it."""
        self._waits(node, self._reading.nodes[self._reading.stands_in[node.name][0]], None)
        for index, name in enumerate(self._reading.stands_in[node.name]):
            wanted = self._decisions.values.value(f"{node.name}:{index}")
            found = self._reading.said(name)
            if wanted is None or found is None or not _same_array(found, wanted):
                raise RewriteError(
                    f"reading {name!r} of the split step: it says {found}, wanted {wanted}"
                )


_READS = frozenset(
    "ReadVariableOp ResourceGather ResourceGatherNd While If Case StatefulPartitionedCall".split()
)
"""Ops that TensorFlow calls stateful, and that may run more than once."""
_DERIVED = frozenset({"_output_shapes", "_class"})


def _of_functions(answer: Split) -> set[str]:
    """The attributes in which copies that run functions of their own differ."""
    bodies = {key.partition("/")[0] for key in bodies_of(answer)}
    return bodies | {"output_shapes", "T", "Tin", "Tout"} if bodies else set()


def _same_array(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)


def _bytes(message: Any) -> bytes:
    """What can be compared where a message holds a NaN."""
    content: bytes = message.SerializeToString(deterministic=True)
    return content
