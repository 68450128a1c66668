"""What the numbers of an input must be, by the ops that read them.

An input's elements are followed through the graph to the ops that use them: as indices, lengths,
ids of segments, sizes. What is divided or diminished on the way may be larger: the ids of a
partitioned table go through that.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from graphs import op_types
from graphs.building.constant_values import ConstantValues
from graphs.building.shapes import TensorProperties, infer
from graphs.building.unit_bodies import UnitFunction, argument_name, unit_bodies
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.host.text_table import table_rows
from graphs.loading.number_forms import FED_SIZE, INTEGER_LIMIT, REAL, WHOLE, Form
from graphs.names import op_of, parse_input, source_of
from graphs.protos import NodeDef, Shape, attribute, shape_of

# Of these only the first output holds elements: Unique's second holds positions.
_FIRST_OUTPUT_ONLY = frozenset({"Unique", "UniqueV2"})


class ElementFlow:
    """Where the elements of each tensor go.

    Attributes:
      flat: the graph.
      properties: the shapes of its tensors.
      values: those of its tensors that are constants.
      readers: {tensor: [(node that reads it, position among the node's inputs)]}.
    """

    def __init__(self, flat: FlatGraph, properties: TensorProperties):
        self.flat = flat
        self.properties = properties
        self.values = ConstantValues(flat.nodes, properties)
        self.readers: dict[str, list[tuple[NodeDef, int]]] = {}
        for node in flat.graph_def.node:
            for position, name in enumerate(node.input):
                if not name.startswith("^"):
                    self.readers.setdefault(parse_input(name).tensor, []).append((node, position))

    def passed_on(self, node: NodeDef, position: int) -> list[str]:
        """The outputs of a node that hold the elements of its input at `position`."""
        positions = op_types.ELEMENTS.get(node.op, ())
        if positions is not None and position not in positions:
            return []
        if node.op == "IdentityN":
            return [f"{node.name}:{position}"]
        count = 1 if node.op in _FIRST_OUTPUT_ONLY else len(self.properties.shape_of[node.name])
        return [f"{node.name}:{i}" for i in range(count)]


_RULES = {
    (op, int(words[0])): (words[1].strip("."), words[2])
    for words in table_rows(__file__)
    for op in words[3:]
}
"""index_ranges.txt: an input, what its numbers have to be like (number_forms), what bounds them, op
types. Bounds: `0[a]` the size of axis a of input 0, `=i` the number that input i is, others see
`_bound`."""
_DEEPEST = 3  # of units in units: a recursion has no end
_COMPARED = frozenset({"Less", "LessEqual", "Greater", "GreaterEqual"})
_BOUNDED = frozenset({"Max", "Min", "Relu", "Relu6", "ClipByValue"})
_SAME_NUMBERS = frozenset({"Cast", "Identity", "Reshape", "ExpandDims", "Squeeze"})


class _Scale(NamedTuple):
    """Elements below `size` are made of inputs below size * factor + offset."""

    factor: Fraction | int
    offset: Fraction | int


_SAME = _Scale(1, 0)


class IndexRanges:
    """Upper limits of the integers in a flat graph, and what else is wanted of numbers."""

    def __init__(self, flow: ElementFlow, depth: int = 0):
        self._flow = flow
        self._nodes = flow.flat.nodes
        self._values = flow.values
        self._depth = depth
        self._in_loop: dict[str, str] = {}  # {argument of a loop's condition: that of its body}

    def form(self, tensor: str) -> Form:
        """What the numbers of `tensor` have to be like; the smallest size that they index."""
        if op_of(tensor) not in self._nodes:  # nothing reads it
            return Form()
        wanted = list(self._all_wanted(tensor))
        names = {form.name for form in wanted}
        limit = min((form.limit for form in wanted if form.limit), default=None)
        is_real = self._flow.properties.dtype(tensor).startswith(("float", "bfloat", "half"))
        is_whole = not is_real or limit is not None or bool(names & (WHOLE.keys() - {""}))
        name = next((name for name in (WHOLE if is_whole else REAL) if name in names), "")
        if name == "sorted" and limit is None:
            rows = self._flow.properties.shape(tensor) or (2,)
            limit = max(rows[0] // 2, 1)
        return Form(name, INTEGER_LIMIT if is_whole and limit is None else limit)

    def _all_wanted(self, tensor: str) -> Iterator[Form]:
        """What each reader of the elements of `tensor` wants of them."""
        pending = [(tensor, _SAME)]
        reached = set(pending)
        while pending:
            name, scale = pending.pop()
            for node, position in self._flow.readers.get(name, ()):
                wanted = [self._wanted(node, position)]
                if node.name in self._flow.flat.unit_of_node:
                    wanted += self._wanted_inside(node, name)
                for form in wanted:
                    limit = form.limit and math.ceil(form.limit * scale.factor + scale.offset)
                    yield Form(form.name, limit if limit and limit > 0 else None)
                changed = self._changed(node, position, scale)
                outputs = self._flow.passed_on(node, position)
                for output in [f"{node.name}:0"] if changed else outputs:
                    following = (output, changed or scale)
                    if following not in reached:
                        reached.add(following)
                        pending.append(following)

    def _wanted_inside(self, unit: NodeDef, tensor: str) -> Iterator[Form]:
        """What is wanted of whole numbers in the body of a loop, or of a call that stays whole."""
        if self._depth < _DEEPEST and self._bodies and "int" in self._flow.properties.dtype(tensor):
            functions, inside = self._bodies
            for number, function in enumerate(functions):
                if self._flow.flat.graph_def.node[function.unit].name == unit.name:
                    for position, name in enumerate(function.inputs):
                        if parse_input(name).tensor == tensor:
                            yield from inside._all_wanted(f"{argument_name(number, position)}:0")

    @functools.cached_property
    def _bodies(self) -> "tuple[Sequence[UnitFunction], IndexRanges] | None":
        opened = unit_bodies(self._flow.flat, self._flow.properties)
        if opened is None:
            return None
        try:
            flow = ElementFlow(opened.flat, infer(opened.flat))
        except ModelError:  # of shapes that change in a loop
            return None
        inside = IndexRanges(flow, self._depth + 1)
        for number, (body, condition) in enumerate(itertools.pairwise(opened.functions)):
            if body.unit == condition.unit and body.inputs == condition.inputs:
                for position in range(len(body.inputs)):
                    own = argument_name(number, position) + ":0"
                    inside._in_loop[argument_name(number + 1, position) + ":0"] = own
        return opened.functions, inside

    def _wanted(self, node: NodeDef, position: int) -> Form:
        """What a node wants of the numbers of its input."""
        if node.op in _COMPARED:
            count = self._counted_by(node.input[1 - position])
            count = count or self._indexed_in_loop(node.input[1 - position])
            if count:
                return Form("length", count + 1)
        name, bound = _RULES.get((node.op, position), ("", "."))
        size = self._bound(node, bound)
        if node.op == "StridedSlice" and attribute(node, "shrink_axis_mask").i:
            name = ""
        return Form(name, size + 1 if size is not None and name in ("length", "size") else size)

    def _bound(self, node: NodeDef, bound: str) -> int | None:
        """A size as the table names it; None where it is not known."""
        if bound == ".":
            return None
        if bound[0] == "=":
            return self._number(node.input[int(bound[1:])])
        if bound == "parts":
            return int(node.attr["num_partitions"].i)
        if bound == "rows":  # that what reads the sums of segments wants
            readers = self._flow.readers.get(f"{node.name}:0", ())
            sums = [n.name for n, _ in readers if n.op in ("Sub", "Mul", "AddV2")]
            sizes = (_size(self._flow.properties.shape(f"{name}:0"), 0) for name in sums)
            return next((size for size in sizes if size), None)
        shape = self._shape(node.input[0])
        if bound == "value":
            value, counted = self._values.value(node.input[2]), _size(shape, -1)
            return None if value is None else min(value.tolist()[:counted], default=None)
        if bound == "least":  # of the axes that the last one of the places counts
            counted = _size(self._shape(node.input[1]), -1)
            return min(shape[:counted], default=None) if shape and counted else None
        if bound == "blank":  # the last class, or the first
            return (_size(shape, -1) or 0) - 1
        if bound == "axis":
            is_gather = node.op == "GatherV2"
            axis = self._values.scalar(node.input[2]) if is_gather else node.attr["seq_dim"].i
            return _size(shape, axis or 0)
        return _size(shape, int(bound[2:-1]))

    def _counted_by(self, tensor: str) -> int | None:
        """The numbers of a tensor that is 0, 1, 2, ..., which lengths are compared with."""
        source = self._nodes[op_of(source_of(tensor, self._nodes, _SAME_NUMBERS))]
        if source.op != "Range":
            numbers = self._values.value(tensor)
            if numbers is None or numbers.size < 2:
                return None
            if not np.array_equal(np.ravel(numbers), np.arange(numbers.size)):
                return None
        shape = self._shape(tensor)
        return max(shape, default=0) if shape is not None and min(shape, default=0) >= 0 else None

    def _indexed_in_loop(self, tensor: str) -> int | None:
        """What the counter of a loop, which its condition compares, indexes in the loop's body."""
        source = parse_input(source_of(tensor, self._nodes, _SAME_NUMBERS)).tensor
        counter = self._in_loop.get(source)
        forms = self._all_wanted(counter) if counter else ()
        return min((form.limit for form in forms if form.limit), default=None)

    def _changed(self, node: NodeDef, position: int, scale: _Scale) -> _Scale | None:
        """The scale behind a division by a constant, a difference with one, a bound or a mask."""
        if node.op in ("Maximum", "Minimum") or (node.op in _BOUNDED and position == 0):
            return scale
        if node.op == "Mul" and self._is_mask(node.input[1 - position]):
            return scale
        if node.op == "Cumsum" and position == 0:  # of a mask: where its words are
            axis = self._values.scalar(node.input[1])
            count = _size(self._shape(node.input[0]), axis) if axis is not None else None
            return _Scale(scale.factor / Fraction(count), scale.offset) if count else None
        if node.op not in ("FloorDiv", "Sub") or position != 0:
            return None
        constant = self._values.scalar(node.input[1])
        if constant is None or constant < (node.op == "FloorDiv"):
            return None
        if node.op == "Sub":
            return _Scale(scale.factor, scale.offset + constant * scale.factor)
        return _Scale(scale.factor * constant, scale.offset)

    def _is_mask(self, tensor: str) -> bool:
        cast = self._nodes[op_of(source_of(tensor, self._nodes, _SAME_NUMBERS - {"Cast"}))]
        return cast.op == "Cast" and self._flow.properties.dtype(cast.input[0]) == "bool"

    def _number(self, tensor: str) -> int | None:
        """A size; where it is fed it is small."""
        source = self._nodes[op_of(source_of(tensor, self._nodes, _SAME_NUMBERS))]
        return FED_SIZE if source.op in op_types.PLACEHOLDERS else self._values.scalar(tensor)

    def _shape(self, tensor: str) -> Shape:
        """The shape of a tensor; of a resource, the shape of its variable."""
        source = source_of(tensor, self._nodes, op_types.HANDLE)
        producer = self._nodes[op_of(source)]
        if producer.op == "VarHandleOp":
            return shape_of(producer.attr["shape"].shape)
        return self._flow.properties.shape(source)


def _size(shape: Sequence[int] | None, axis: int) -> int | None:
    """The size of a dimension; None where it is not known."""
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis] if shape[axis] >= 0 else None
