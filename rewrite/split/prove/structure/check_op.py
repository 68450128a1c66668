"""Whether an op of a split step is the op that it stands for, and reads what it should."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from graphs.building.op_outputs import op_definition
from graphs.names import beside, data_inputs, op_of, tensor_of
from graphs.protos import AttrValue, NodeDef, attribute, shape_of
from rewrite.compare_graphs import same_content
from rewrite.pass_base import RewriteError
from rewrite.split.decision import Split, attributes_of_copies, type_of_copies
from rewrite.split.prove.ops.op_case import of_shard
from rewrite.split.prove.structure.reshard_reader import Meaning
from rewrite.split.prove.structure.step_reading import Reading
from rewrite.split.states import SUM, WHOLE, Sharded, State

_DERIVED = frozenset({"_output_shapes", "_class"})
_INT32 = 3


class Wanted(NamedTuple):
    """What an op of a split step has to be.

    Attributes:
      node: the op of the unsplit step that it stands for.
      answer: what was decided of that; None where it stays as it is.
      attributes: by their names, those of functions left out.
      of_functions: names of the attributes in which copies differ that run functions of their own.
      inputs: the tensors that the unsplit op reads.
      waits: the ops that it waits for.
      beside: the ops that it has to lie beside.
    """

    node: NodeDef
    answer: Split | None
    attributes: Mapping[str, AttrValue]
    of_functions: Collection[str]
    inputs: Sequence[str]
    waits: Sequence[str]
    beside: Sequence[str]


def _wanted_of(node: NodeDef, answer: Split | None) -> Wanted:
    """What an op has to become, whole or for each of many shards."""
    own = set() if answer is None else {key.partition("/")[0] for key in answer.bodies}
    if own:  # copies that run functions of their own differ in these, too
        own |= {"output_shapes", "T", "Tin"}
    attributes = _computing(attributes_of_copies(node, answer), own)
    if node.op == "VarHandleOp" and answer is not None:
        attributes.pop("shared_name", None)  # each piece has one of its own
    waits = [name[1:] for name in node.input if name.startswith("^")]
    return Wanted(node, answer, attributes, own, data_inputs(node), waits, beside(node))


def _require_same_op(here: NodeDef, wanted: Wanted) -> None:
    """Raises RewriteError unless `here` is the op: type and attributes but for decided ones."""
    found = _computing(here.attr, wanted.of_functions)
    is_piece = here.op == "VarHandleOp" and wanted.answer is not None
    if is_piece and not found.pop("shared_name").s.endswith(f"/{here.name}".encode()):
        raise RewriteError(f"reading {here.name!r} of the split step: whose piece is this?")
    op = type_of_copies(wanted.node, wanted.answer)
    is_same = found.keys() == wanted.attributes.keys() and all(
        same_content(mine, wanted.attributes[key]) for key, mine in found.items()
    )
    if here.op != op or not is_same:
        raise RewriteError(f"reading {here.name!r} of the split step: it is another op")
    more = len(data_inputs(here)) - len(wanted.inputs)
    if more and (more != 1 or not wanted.of_functions):  # functions may read their shard's numbers
        raise RewriteError(f"reading {here.name!r} of the split step: it reads more or less")
    if wanted.of_functions:
        assert wanted.answer is not None
        _require_types(wanted.node, here, wanted.answer, more)


def _waits_of(node: NodeDef) -> set[str]:
    return {name[1:] for name in node.input if name.startswith("^")}


def _computing(attrs: Mapping[str, AttrValue], without: Collection[str]) -> dict[str, AttrValue]:
    return {key: attrs[key] for key in attrs if key not in _DERIVED and key not in without}


def _require_types(node: NodeDef, here: NodeDef, answer: Split, more: int) -> None:
    """The types and shapes of what a copy hands to its functions, and gets."""
    is_right = {*node.attr} - _DERIVED == {*here.attr} - _DERIVED
    for key in ("T", "Tin"):
        if key in node.attr:
            wanted = [*node.attr[key].list.type, *[_INT32] * more]
            is_right &= list(here.attr[key].list.type) == wanted
    for key in {key.partition("/")[0] for key in answer.bodies}:
        before, after = node.attr[key], here.attr[key]
        is_right &= len(before.list.func) == len(after.list.func)
        is_right &= all(not each.attr for each in (after.func, *after.list.func))
    if "output_shapes" in node.attr:
        shapes = [shape_of(shape) for shape in attribute(node, "output_shapes").list.shape]
        found = [shape_of(shape) for shape in attribute(here, "output_shapes").list.shape]
        is_right &= len(found) in (len(shapes), len(shapes) + more)
        for shape, mine, state in zip(shapes, found, answer.outputs, strict=False):
            if isinstance(state, Sharded) and shape is not None and state.axis < len(shape):
                shape = (*shape[: state.axis], -1, *shape[state.axis + 1 :])
            is_right &= shape == mine
    if not is_right:
        raise RewriteError(f"reading {here.name!r} of the split step: it hands on something else")


def same_array(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Whether two numbers are known, of one type, and the same."""
    if one is None or other is None:
        return False
    return one.dtype == other.dtype and np.array_equal(one, other)


_READS = frozenset(
    "ReadVariableOp ResourceGather ResourceGatherNd CheckNumerics While If Case "
    "StatefulPartitionedCall".split()
)
"""Ops that TensorFlow calls stateful, and that may run more than once."""


class OpChecks:
    """Raises RewriteError for the first op of a graph that isn't what was decided."""

    def __init__(self, reading: Reading, functions: Callable[[NodeDef, NodeDef, Split, int], None]):
        """Begins."""
        self._reading, self._functions = reading, functions

    def op(self, node: NodeDef) -> None:
        """Raises RewriteError unless an op has become what was decided."""
        name, reading = node.name, self._reading
        if name in reading.stands_in:
            self._shape(node)
        elif name not in reading.copies:
            here, wanted = reading.nodes[name], _wanted_of(node, None)
            self._same(here, wanted, None)
            for old, new in zip(wanted.inputs, data_inputs(here), strict=True):
                self.reads(name, new, tensor_of(old), WHOLE, None)
        else:
            answer = reading.decided.answer_of_op[name]
            assert isinstance(answer, Split)
            of_pieces = {f"{handle}:0" for handle in reading.pieces}
            is_of_piece = name in reading.pieces or not of_pieces.isdisjoint(
                map(tensor_of, data_inputs(node))
            )
            is_effect = op_definition(node.op, name).is_stateful and node.op not in _READS
            if is_effect and not is_of_piece:
                raise RewriteError(f"reading {reading.where}: {name!r} has effects, and has copies")
            copies = reading.copies[name]
            if name in reading.nodes and name not in copies:
                self._same(reading.nodes[name], _wanted_of(node, None), None)
            wanted = _wanted_of(node, answer)
            tensors = [tensor_of(old) for old in wanted.inputs]
            for shard, copy in zip(reading.shards, copies, strict=True):
                here = reading.nodes[copy]
                if is_of_piece and node.input and reading.ready.isdisjoint(_waits_of(here)):
                    raise RewriteError(f"reading {copy!r} of {reading.where}: it doesn't wait")
                self._same(here, wanted, shard)
                self._copy_reads(tensors, here, shard, answer)
                self._functions(node, here, answer, shard)

    def _same(self, here: NodeDef, wanted: Wanted, shard: int | None) -> None:
        """The same op type, attributes but for those that were decided, and control edges."""
        _require_same_op(here, wanted)
        names = {name for each in wanted.beside for name in self._beside(each, shard)}
        if set(beside(here)) != names:
            raise RewriteError(f"reading {here.name!r} of the split step: it is another op")
        self._waits(wanted.waits, here, shard)

    def _waits(self, waits: Sequence[str], here: NodeDef, shard: int | None) -> None:
        """The same control edges, besides those from the assertion that the batch is no refusal."""
        controls = _waits_of(here) - self._reading.asserts - self._reading.ready
        if controls != {op for wait in waits for op in self.ops_for(wait, shard)}:
            raise RewriteError(f"reading {here.name!r} of the split step: it waits for other ops")

    def _beside(self, name: str, shard: int | None) -> list[str]:
        """The ops that one may have to lie beside; a whole one can't beside all copies."""
        if name not in self._reading.copies:
            return [name]
        return [] if shard is None else [self._copy(name, shard)]

    def ops_for(self, name: str, shard: int | None) -> set[str]:
        """What an op waits for that waited for another one."""
        copies = self._reading.copies.get(name)
        if copies is None:
            return set(self._reading.stands_in.get(name, [name])[:1])
        return set(copies) if shard is None else {self._copy(name, shard)}

    def _copy(self, name: str, shard: int) -> str:
        return self._reading.copies[name][self._reading.shards.index(shard)]

    def _shape(self, node: NodeDef) -> None:
        """What stands for an op that asks for a shape says the unsplit tensor's, as late as it."""
        for name in self._reading.stands_in[node.name][:1]:
            waits = [each[1:] for each in node.input if each.startswith("^")]
            self._waits(waits, self._reading.nodes[name], None)
        for index, name in enumerate(self._reading.stands_in[node.name]):
            wanted = self._reading.facts.value(f"{node.name}:{index}")
            found = self._reading.said(name)
            if not same_array(found, wanted):
                raise RewriteError(
                    f"reading {name!r} of the split step: it says {found}, wanted {wanted}"
                )

    def _copy_reads(self, tensors: Sequence[str], here: NodeDef, shard: int, answer: Split) -> None:
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
          new: the input.
          tensor: what it was.
          state: what it has to be of that.
          shard: whose reader this is; None of one for all.
          first_row: from which row it has to count, if it holds numbers of rows.
        """
        state = self._reading.decided.read_as(tensor, state)
        if state == WHOLE:
            wanted = Meaning(tensor)
        else:
            assert shard is not None
            wanted = Meaning(tensor, state, frozenset({shard}), first_row=first_row)
            if state == SUM and self._reading.decided.state_of_tensor[tensor] == WHOLE:
                # A whole tensor as terms of a sum: the first shard has all of it.
                wanted = Meaning(tensor, SUM, frozenset()) if shard else Meaning(tensor)
        found = self._reading.meaning(new)
        if state == WHOLE and isinstance(found, np.ndarray):  # a shard's own copy of a number
            found = wanted if same_array(found, self._reading.facts.value(tensor)) else found
        siblings = self._reading.copies.get(op_of(tensor), ())
        if state == WHOLE and shard is not None and op_of(new) in siblings:
            wanted = wanted if op_of(new) == self._copy(op_of(tensor), shard) else Meaning("")
        if not isinstance(found, Meaning) or found != wanted:
            part = "all" if shard is None or state == WHOLE else f"part {shard}"
            raise self._wrong(reader, new, f"{part} of {tensor!r}")

    def _wrong(self, reader: str, new: str, wanted: str) -> RewriteError:
        where = self._reading.where
        return RewriteError(f"reading {reader!r} of {where}: it reads {new!r}, wanted {wanted}")
