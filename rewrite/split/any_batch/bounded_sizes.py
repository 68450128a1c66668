"""Sizes that are the batch's only as long as it is neither too small nor too large.

A step of any batch size is decided at a few sizes, and is right for others only if what its ops are
told (where a slice begins, how far to pad) goes with the batch in a straight line. The larger of
two sizes, a quotient or a remainder need not: `tf.pad(x, [[0, tf.maximum(0, 8 - n)], [0, 0]])` pads
nothing at 32, 35 and 1,029 entries, and each shard's part at five. Such numbers are marked here,
and followed to the ops that are told them and to what these make.
"""

import itertools
from collections.abc import Mapping

import numpy as np

from graphs import op_types
from graphs.names import data_inputs, tensor_of
from graphs.protos import NodeDef
from rewrite.split.any_batch.agreement import is_told_another_size
from rewrite.split.any_batch.size_lines import Line, bent_elements, is_clipped
from rewrite.split.constant_folding import SHAPE_OPS
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import Answer, DecidedFunction, DecidedGraph, Split
from rewrite.split.rules.table import ELEMENTWISE
from rewrite.split.states import WHOLE, Sharded, State

_EACH_AXIS = frozenset("Slice Pad PadV2 MirrorPad MirrorPadGrad Tile BroadcastTo Fill".split())
_ADDED = frozenset("Add AddV2 Cast ExpandDims Identity Reshape".split())
"""What lies between the numbers of the batch's entries and the row numbers that count by them."""
_SHAPE_INPUT = {"AvgPool3DGrad": 0, "AvgPoolGrad": 0, "BroadcastTo": 1, "Conv2DBackpropInput": 0,
                "Conv3DBackpropInputV2": 0, "DepthwiseConv2dNativeBackpropInput": 0, "Fill": 0,
                "Reshape": 1, "ScatterNd": 2, "Slice": 2, "StridedSliceGrad": 0}  # fmt: skip
"""{op: the input that says its output's whole shape, whatever the shapes of all others}."""
_SHAPED_AS_FIRST = op_types.listed("as_first")


def of_bounded_sizes(first: Decisions, second: Decisions) -> set[str]:
    """Ops that are told, or make, what is the batch's size at some sizes only.

    Behind the first of them all are found whose results would be cut: what they are made of is
    whole now, but its size is what it was. Finding them pass by pass took time squared in depth.

    Args:
      first, second: what was decided at two batch sizes, of the same other sizes where that runs.
    """
    if first.batch == second.batch:  # nothing grows but what else is open
        return set()
    return _Graph((first.batch, second.batch), (first, second)).found({}, set())


class _Graph:
    """A step, or a function that it runs, at two batch sizes.

    Attributes:
      marks: {tensor: which of its elements are no straight line}; all of one that only a run
        decides, made of such.
      shaped: tensors whose sizes may not be what they seem.
    """

    def __init__(self, batches: tuple[int, int], decided: tuple[DecidedGraph, DecidedGraph]):
        self._batches, self._decided = batches, decided
        self._facts = tuple(each.facts for each in decided)
        self._states = decided[0].state_of_tensor
        self.marks: dict[str, np.ndarray] = {}
        self.shaped: set[str] = set()

    def found(self, marks: Mapping[str, np.ndarray], shaped: set[str]) -> set[str]:
        """See of_bounded_sizes."""
        self.marks.update(marks)
        self.shaped |= shaped
        found: set[str] = set()
        behind: set[str] = set()  # what these make
        for node in self._facts[0].flat.graph_def.node:
            data = [tensor_of(name) for name in data_inputs(node)]
            names = (f"{node.name}:{i}" for i in itertools.count())
            outputs = list(itertools.takewhile(self._states.__contains__, names))
            for index, tensor in enumerate(outputs):
                self._mark(node, data, tensor, index)
            answer = self._decided[0].answer_of_op[node.name]
            is_told = self._is_told(node, answer, data) or self._in_bodies(node, data)
            is_bent = not isinstance(answer, Split) and self._is_clipped(node, data)
            is_unsure = is_told or is_bent or not self.shaped.isdisjoint(data)
            if is_unsure and not self._says_its_shape(node, data):
                self.shaped.update(t for t in outputs if is_bent or self._varies(t))
            is_wrong = isinstance(answer, Split) and is_told and behind.isdisjoint(data)
            is_cut = [t for t in outputs if isinstance(self._states[t], Sharded)]
            if is_wrong or not self.shaped.isdisjoint(is_cut):
                found.add(node.name)
                behind.update(outputs)
        return found

    def _varies(self, tensor: str) -> bool:
        one, other = (each.shape(tensor) for each in self._facts)
        return one != other

    def _says_its_shape(self, node: NodeDef, data: list[str]) -> bool:
        """Whether unmarked numbers, or the first input, say its output's shape at both sizes."""
        if node.op in _SHAPED_AS_FIRST:
            return data[0] not in self.shaped
        if node.op not in _SHAPE_INPUT or data[_SHAPE_INPUT[node.op]] in self.marks:
            return False
        for at in self._facts:
            said, shape = at.value(data[_SHAPE_INPUT[node.op]]), at.shape(f"{node.name}:0")
            if said is None or shape is None or said.tolist() != [*shape]:
                return False
        return True

    def _mark(self, node: NodeDef, data: list[str], tensor: str, index: int) -> None:
        value, other = (each.value(tensor) for each in self._facts)
        if value is None:
            marked = np.array(node.op in _ADDED and any(t in self.marks for t in data))
        elif value.dtype.kind not in "iufb":
            return
        elif node.op not in SHAPE_OPS:
            lines = [self._line(t) for t in data]
            marked = bent_elements(node, lines, value, index, node.op in ELEMENTWISE)
        elif data[index] not in self.shaped:
            return
        elif self._varies(data[index]) and other is not None and value.shape == other.shape:
            marked = value != other
        else:
            marked = np.array(True)
        if marked.any():
            self.marks[tensor] = marked if value is None else np.broadcast_to(marked, value.shape)

    def _line(self, tensor: str) -> Line:
        one, other = (each.value(tensor) for each in self._facts)
        return Line(self._batches, one, other, self.marks.get(tensor, np.zeros((), bool)))

    def _is_told(self, node: NodeDef, answer: Answer, data: list[str]) -> bool:
        """Whether a marked number says what an op does with the axis that is cut."""
        if node.op in ELEMENTWISE or node.op in op_types.CONDITIONALS | op_types.LOOPS:
            return False
        inputs: tuple[State, ...] = (WHOLE,) * len(data)
        outputs: tuple[State, ...] = ()
        if isinstance(answer, Split):
            inputs, outputs = answer.inputs, answer.outputs
            if any(data[position] in self.marks for position in answer.row_inputs):
                return True
        cut = [each.axis for each in (*inputs, *outputs) if isinstance(each, Sharded)]
        for tensor, state in zip(data, inputs, strict=True):
            marked, value = self.marks.get(tensor), self._facts[0].value(tensor)
            if marked is None or value is None or value.dtype.kind not in "iu" or state != WHOLE:
                continue
            if cut and node.op in _EACH_AXIS and cut[0] < len(marked):
                marked = marked[cut[0]]
            if marked.any():
                return True
        return False

    def _is_clipped(self, node: NodeDef, data: list[str]) -> bool:
        """Whether it makes as many elements as the batch's size says at some sizes only."""
        shapes = [each.shape(data[0]) for each in self._facts] if data else []
        return is_clipped(node, shapes, [self._line(t) for t in data])

    def _in_bodies(self, node: NodeDef, data: list[str]) -> bool:
        """Whether a function that the op runs has such ops, or sizes that are not the batch's."""
        answers = (each.answer_of_op[node.name] for each in self._decided)
        one, other = (each.bodies if isinstance(each, Split) else each.opened for each in answers)
        first = 1 if node.op in op_types.CONDITIONALS else 0
        return any(
            self._in_body((body, other[key]), data[first:])
            for key, body in one.items()
            if key in other
        )

    def _in_body(self, bodies: tuple[DecidedFunction, DecidedFunction], data: list[str]) -> bool:
        for batch, body in zip(self._batches, bodies, strict=True):
            if any(is_told_another_size(n, body, batch) for n in body.facts.flat.graph_def.node):
                return True
        given = dict(zip(data, bodies[0].body.arguments, strict=False))
        marks = {given[t]: self.marks[t] for t in given if t in self.marks}
        shaped = {given[t] for t in given if t in self.shaped}
        return bool(_Graph(self._batches, bodies).found(marks, shaped))
