"""Sizes that are the batch's only as long as it is neither too small nor too large.

A step of any batch size is decided at a few sizes, and is right for others only if what its ops are
told (where a slice begins, how far to pad) goes with the batch in a straight line. The larger of
two sizes, a quotient or a remainder need not: `tf.pad(x, [[0, tf.maximum(0, 8 - n)], [0, 0]])` pads
nothing at 32, 35 and 1,029 entries, and each shard's part at five. Such numbers are marked here,
and followed to the ops that are told them and to what these make.
"""

from collections.abc import Callable, Mapping

import numpy as np

from graphs import op_types
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, tensor_of
from graphs.protos import NodeDef
from graphs.tensor_protos import Shape
from rewrite.split.any_batch.size_lines import Line, bent_elements, is_clipped
from rewrite.split.constant_folding import SHAPE_OPS
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import Answer, DecidedFunction, Split
from rewrite.split.rules.table import ELEMENTWISE
from rewrite.split.shape_facts import Facts
from rewrite.split.states import WHOLE, Sharded, State

_EACH_AXIS = frozenset("Slice Pad PadV2 MirrorPad MirrorPadGrad Tile BroadcastTo Fill".split())
_ADDED = frozenset("Add AddV2 Cast ExpandDims Identity Reshape".split())
"""What lies between the numbers of the batch's entries and the row numbers that count by them."""
_SHAPE_INPUT = {"AvgPool3DGrad": 0, "AvgPoolGrad": 0, "BroadcastTo": 1, "Conv2DBackpropInput": 0,
                "Conv3DBackpropInputV2": 0, "DepthwiseConv2dNativeBackpropInput": 0, "Fill": 0,
                "Reshape": 1, "ScatterNd": 2, "Slice": 2, "StridedSliceGrad": 0}  # fmt: skip
"""{op: the input that says its output's whole shape, whatever the shapes of all others}."""
_SHAPED_AS_FIRST = frozenset(
    """
    MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 TensorScatterAdd TensorScatterMax TensorScatterMin
    TensorScatterSub TensorScatterUpdate
    """.split()
)
Values = Callable[[str], np.ndarray | None]
Shapes = Callable[[str], Shape]


def of_bounded_sizes(flat: FlatGraph, first: Decisions, second: Decisions) -> set[str]:
    """Ops that are told, or make, what is the batch's size at some sizes only.

    Behind the first of them all are found whose results would be cut: what they are made of is
    whole now, but its size is what it was. Finding them pass by pass took time squared in depth.

    Args:
      flat: the step.
      first, second: what was decided at two batch sizes, of the same other sizes where that runs.
    """
    if first.batch == second.batch:  # nothing grows but what else is open
        return set()
    both = (first, second)
    graph = _Graph(
        flat.graph_def.node,
        (first.batch, second.batch),
        tuple(each.values.value for each in both),
        tuple(each.properties.shape for each in both),
        tuple(each.answer_of_op for each in both),
        first.state_of_tensor,
    )
    return graph.found({}, set())


class _Graph:
    """A step, or a function that it runs, at two batch sizes.

    Attributes:
      marks: {tensor whose value is known: which of its elements are no straight line}.
      shaped: tensors whose sizes may not be what they seem.
      clipped: the same, of sizes that seem to be always the same.
      counted: numbers that a run decides, to which marked ones are added.
    """

    def __init__(
        self,
        nodes: NodeDef,
        batches: tuple[int, int],
        values: tuple[Values, ...],
        shapes: tuple[Shapes, ...],
        answers: tuple[Mapping[str, Answer], ...],
        states: Mapping[str, State],
    ):
        self._nodes, self._batches, self._answers, self._states = nodes, batches, answers, states
        self._values, self._shapes = values, shapes
        self.marks: dict[str, np.ndarray] = {}
        self.shaped: set[str] = set()
        self.clipped: set[str] = set()
        self.counted: set[str] = set()

    def found(self, marks: Mapping[str, np.ndarray], shaped: set[str]) -> set[str]:
        """See of_bounded_sizes.

        Args:
          marks, shaped: of the tensors that the graph is given.
        """
        self.marks.update(marks)
        self.shaped |= shaped
        found: set[str] = set()
        behind: set[str] = set()  # what these make
        for node in self._nodes:
            data = [tensor_of(name) for name in data_inputs(node)]
            outputs = [f"{node.name}:{i}" for i in range(self._num_outputs(node.name))]
            self._mark(node, data, outputs)
            if node.op in _ADDED and any(t in self.marks or t in self.counted for t in data):
                self.counted.update(t for t in outputs if self._values[0](t) is None)
            answer = self._answers[0][node.name]
            is_told = self._is_told(node, answer, data) or self._in_bodies(node, data)
            is_bent = not isinstance(answer, Split) and self._is_clipped(node, data)
            self.clipped.update(t for t in outputs if is_bent and not self._varies(t))
            is_unsure = is_told or is_bent or not self.shaped.isdisjoint(data)
            if is_unsure and not self._says_its_shape(node, data):
                self.shaped.update(t for t in outputs if self._varies(t))
            is_wrong = isinstance(answer, Split) and is_told and behind.isdisjoint(data)
            is_cut = [t for t in outputs if isinstance(self._states[t], Sharded)]
            if is_wrong or not self.shaped.isdisjoint(is_cut):
                found.add(node.name)
                behind.update(outputs)
        return found

    def _num_outputs(self, op: str) -> int:
        count = 0
        while f"{op}:{count}" in self._states:
            count += 1
        return count

    def _varies(self, tensor: str) -> bool:
        return self._shapes[0](tensor) != self._shapes[1](tensor)

    def _says_its_shape(self, node: NodeDef, data: list[str]) -> bool:
        """Whether unmarked numbers, or the first input, say its output's shape at both sizes."""
        if node.op in _SHAPED_AS_FIRST:
            return data[0] not in self.shaped
        if node.op not in _SHAPE_INPUT or data[_SHAPE_INPUT[node.op]] in self.marks:
            return False
        said = [value(data[_SHAPE_INPUT[node.op]]) for value in self._values]
        shapes = [shape(f"{node.name}:0") for shape in self._shapes]
        return all(
            one is not None and shape is not None and one.tolist() == [*shape]
            for one, shape in zip(said, shapes, strict=True)
        )

    def _mark(self, node: NodeDef, data: list[str], outputs: list[str]) -> None:
        for index, tensor in enumerate(outputs):
            value = self._values[0](tensor)
            if value is None or value.dtype.kind not in "iufb":
                continue
            if node.op in SHAPE_OPS:
                other = self._values[1](tensor)
                marked = np.zeros(value.shape, bool)
                if data[index] in self.shaped and other is not None:
                    marked = value != other if value.shape == other.shape else ~marked
                if data[index] in self.clipped:
                    marked = np.ones(value.shape, bool)
            else:
                lines = [self._line(t) for t in data]
                marked = bent_elements(node, lines, value, node.op in ELEMENTWISE)
            if marked.any():
                self.marks[tensor] = np.broadcast_to(marked, value.shape)

    def _line(self, tensor: str) -> Line:
        one, other = (each(tensor) for each in self._values)
        marks = self.marks.get(tensor)
        if marks is None:
            marks = np.zeros(() if one is None else one.shape, bool)
        return Line(self._batches, one, other, marks)

    def _is_told(self, node: NodeDef, answer: Answer, data: list[str]) -> bool:
        """Whether a marked number says what an op does with the axis that is cut."""
        if node.op in ELEMENTWISE or node.op in op_types.CONDITIONALS | op_types.LOOPS:
            return False
        rows = answer.row_inputs if isinstance(answer, Split) else ()
        if any(data[at] in self.counted or data[at] in self.marks for at in rows):
            return True
        inputs: tuple[State, ...] = (WHOLE,) * len(data)
        outputs: tuple[State, ...] = ()
        if isinstance(answer, Split):
            inputs, outputs = answer.inputs, answer.outputs
        cut = [each.axis for each in (*inputs, *outputs) if isinstance(each, Sharded)]
        axis = next(iter(cut), None)
        for tensor, state in zip(data, inputs, strict=True):
            marked, value = self.marks.get(tensor), self._values[0](tensor)
            if marked is None or value is None or value.dtype.kind not in "iu" or state != WHOLE:
                continue
            if axis is not None and node.op in _EACH_AXIS and axis < len(marked):
                marked = marked[axis]
            if marked.any():
                return True
        return False

    def _is_clipped(self, node: NodeDef, data: list[str]) -> bool:
        """Whether it makes as many elements as the batch's size says at some sizes only."""
        shapes = [each(data[0]) for each in self._shapes] if data else []
        return is_clipped(node, shapes, [self._line(t) for t in data])

    def _in_bodies(self, node: NodeDef, data: list[str]) -> bool:
        """Whether a function that the op runs has such ops, or sizes that are not the batch's."""
        answers = [each[node.name] for each in self._answers]
        bodies = [each.bodies if isinstance(each, Split) else each.opened for each in answers]
        first = 1 if node.op in op_types.CONDITIONALS else 0
        for key, body in bodies[0].items():
            if key in bodies[1] and self._in_body((body, bodies[1][key]), data[first:]):
                return True
        return False

    def _in_body(self, bodies: tuple[DecidedFunction, DecidedFunction], data: list[str]) -> bool:
        facts = tuple(body.facts for body in bodies)
        body = bodies[0]
        if any(_has_another_size(each, batch) for each, batch in zip(bodies, self._batches,
                                                                     strict=True)):  # fmt: skip
            return True
        inside = _Graph(
            body.body.flat.graph_def.node,
            self._batches,
            tuple(each.value for each in facts),
            tuple(each.shape for each in facts),
            tuple(each.answer_of_op for each in bodies),
            body.state_of_tensor,
        )
        given = dict(zip(data, body.body.arguments, strict=False))
        marks = {given[t]: self.marks[t] for t in given if t in self.marks}
        return bool(inside.found(marks, {given[t] for t in given if t in self.shaped}))


def _has_another_size(body: DecidedFunction, batch: int) -> bool:
    """Whether an op of a function is told a size that only is enough for the batch."""
    facts: Facts = body.facts
    for node in body.body.flat.graph_def.node:
        answer = body.answer_of_op[node.name]
        if not isinstance(answer, Split):
            continue
        data = data_inputs(node)
        for position, entries in answer.shape_inputs.items():
            value = facts.value(tensor_of(data[position]))
            for entry, state in entries.items():
                if value is None or value.reshape(-1)[entry] not in (-1, state.size(batch)):
                    return True
    return False
