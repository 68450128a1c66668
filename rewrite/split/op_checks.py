"""Compares each op of an unsplit step with what it has become in the split one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphs.building.op_outputs import op_definition
from graphs.names import data_inputs, tensor_of
from rewrite.pass_base import RewriteError
from rewrite.split.decide import Decisions
from rewrite.split.op_view import Split
from rewrite.split.prove_bodies import BodyProver
from rewrite.split.same_op import (
    InputChecks,
    Wanted,
    beside,
    require_same_op,
    same_array,
    wanted_of,
)
from rewrite.split.states import WHOLE
from rewrite.split.step_reading import StepReading


class OpChecks(InputChecks):
    """Raises RewriteError for the first op that isn't what was decided."""

    def __init__(self, decisions: Decisions, reading: StepReading, bodies: BodyProver):
        super().__init__(reading, decisions.state_of_tensor)
        self._reading: StepReading = reading
        self._decisions, self._bodies = decisions, bodies

    def op(self, node: Any) -> None:
        """Raises RewriteError unless an op has become what was decided."""
        name, reading = node.name, self._reading
        if name in reading.stands_in:
            self._shape(node)
        elif name not in reading.copies:
            here, wanted = reading.nodes[name], wanted_of(node, None)
            self._same(here, wanted, None)
            for old, new in zip(wanted.inputs, data_inputs(here), strict=True):
                self.reads(name, new, tensor_of(old), WHOLE, None)
        else:
            answer = self._decisions.answer_of_op[name]
            assert isinstance(answer, Split)
            if op_definition(node.op, name).is_stateful and node.op not in _READS:
                raise RewriteError(f"reading a split step: {name!r} has effects, and has copies")
            if name in reading.nodes:
                self._same(reading.nodes[name], wanted_of(node, None), None)
            wanted = wanted_of(node, answer)
            tensors = [tensor_of(old) for old in wanted.inputs]
            for shard, copy in enumerate(reading.copies[name]):
                here = reading.nodes[copy]
                self._same(here, wanted, shard)
                self.copy_reads(tensors, here, shard, answer)
                self._bodies.op(node, here, answer, shard)

    def fetch(self, before: str, after: str) -> None:
        """Raises RewriteError unless a fetch gives what it gave, or runs what it ran."""
        if ":" in before:
            self.reads("a fetch", after, tensor_of(before), WHOLE, None)
            return
        ops = self._ops_for(before, None)
        node = self._reading.nodes.get(after)
        waits = [] if node is None or node.op != "NoOp" else list(node.input)
        if {after} != ops and set(waits) != {f"^{op}" for op in ops}:
            raise RewriteError(f"reading a split step: fetching {after!r} doesn't run {before!r}")

    def _same(self, here: Any, wanted: Wanted, shard: int | None) -> None:
        """The same op type, attributes but for those that were decided, and control edges."""
        require_same_op(here, wanted)
        names = {name for each in wanted.beside for name in self._beside(each, shard)}
        if set(beside(here)) != names:
            raise RewriteError(f"reading {here.name!r} of the split step: it is another op")
        self._waits(wanted.waits, here, shard)

    def _waits(self, waits: Sequence[str], here: Any, shard: int | None) -> None:
        """The same control edges, besides those from the assertion that the batch is no refusal."""
        controls = {name[1:] for name in here.input if name[:1] == "^"} - self._reading.asserts
        if controls != {op for wait in waits for op in self._ops_for(wait, shard)}:
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

    def _shape(self, node: Any) -> None:
        """What stands for an op that asks for a shape says the unsplit tensor's, as late as it."""
        here = self._reading.nodes[self._reading.stands_in[node.name][0]]
        self._waits([name[1:] for name in node.input if name.startswith("^")], here, None)
        for index, name in enumerate(self._reading.stands_in[node.name]):
            wanted = self._decisions.values.value(f"{node.name}:{index}")
            found = self._reading.said(name)
            if not same_array(found, wanted):
                raise RewriteError(
                    f"reading {name!r} of the split step: it says {found}, wanted {wanted}"
                )


_READS = frozenset(
    "ReadVariableOp ResourceGather ResourceGatherNd CheckNumerics While If Case "
    "StatefulPartitionedCall".split()
)
"""Ops that TensorFlow calls stateful, and that may run more than once."""
