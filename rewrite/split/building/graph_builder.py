"""Makes a graph of a split step, op by op: the main graph, or the function that a shard runs."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphs.names import beside, data_inputs, op_of, tensor_of
from graphs.protos import NodeDef
from rewrite.pass_base import RewriteError
from rewrite.split.building.function_shapes import OpenFunctionShapes, ShardShapes
from rewrite.split.building.function_tensors import FunctionTensors
from rewrite.split.building.shard_shapes import SizesInput, WholeTensor
from rewrite.split.building.step_tensors import StepTensors
from rewrite.split.constant_folding import SHAPE_OPS
from rewrite.split.decision import DecidedGraph, Split, attributes_of_copies, type_of_copies
from rewrite.split.node_writer import NodeWriter
from rewrite.split.rules.lists import LIST_SHAPE_OPS
from rewrite.split.states import WHOLE, Listed, Partial

_DERIVED = frozenset({"_class", "_output_shapes"})
Adapt = Callable[[NodeDef, Split, int, ShardShapes], None]
"""Makes a shard's copy of an op run functions of its own, if it runs any."""


class GraphBuilder:
    """Adds what becomes of each op of a graph to another one, in which some shards live.

    Attributes:
      writer: takes the ops.
      decided: what becomes of each.
      copies: {op: its copies, one for each shard that lives in the new graph}.
      said: {op that asks for several shapes: what says each of them}.
      tensors: finds each tensor in the form that an op wants.
    """

    def __init__(
        self,
        writer: NodeWriter,
        decided: DecidedGraph,
        shards: Sequence[int],
        copies: Mapping[str, Sequence[str]],
        shapes: ShardShapes,
        tensors: StepTensors | FunctionTensors,
        adapt: Adapt,
        key: str = "",
    ):
        """Begins; `shards` are those that live in the new graph; `key` as for `build_step`."""
        self.writer, self.decided, self.copies, self.tensors = writer, decided, copies, tensors
        self.said: dict[str, list[str]] = {}
        self._shards, self._shapes, self._adapt, self._key = shards, shapes, adapt, key

    def add(self, node: NodeDef) -> None:
        """Adds what an op becomes; ops come in the order of their graph."""
        self.writer.origin = node.name
        answer = self.decided.answer_of_op[node.name]
        if isinstance(answer, Split):
            self._add_copies(node, answer)
        elif node.op in SHAPE_OPS | LIST_SHAPE_OPS and self._is_of_parts(node):
            self._add_answers(node)
        else:
            self.add_whole(node)

    def add_whole(self, node: NodeDef) -> None:
        """Adds an op that stays one."""
        inputs = [self.tensors.whole(name) for name in data_inputs(node)]
        self._add_op(node, _of_all_copies(node), node.name, inputs, None)
        for tensor in self._outputs(node):
            self.tensors.set_whole(tensor, tensor)

    def _add_copies(self, node: NodeDef, answer: Split) -> None:
        """Adds an op's copies."""
        names, alike = self.copies[node.name], _of_all_copies(node, answer)
        pairs = zip(data_inputs(node), answer.inputs, strict=True)
        parts_of_inputs = [self.tensors.parts(name, state) for name, state in pairs]
        for shard, name, *mine in zip(self._shards, names, *parts_of_inputs, strict=True):
            inputs = self._inputs_of_copy(node, answer, mine, shard)
            new = self._add_op(node, alike, name, inputs, shard)
            self._adapt(new, answer, shard, self._shapes)
            if node.op == "VarHandleOp":  # a piece of a variable is one of its own
                new.attr["shared_name"].s = f"{self._key}/{name}".encode()
        for index, state in enumerate(answer.outputs):
            tensor, parts = f"{node.name}:{index}", [f"{name}:{index}" for name in names]
            if state == WHOLE:
                self.tensors.set_whole(tensor, parts[0])
            if answer.is_mean and isinstance(state, Partial):
                each = zip(parts, self._shards, strict=True)
                parts = [self._weighted(tensor, part, shard) for part, shard in each]
            self.tensors.set_parts(tensor, state, parts)

    def _inputs_of_copy(
        self, node: NodeDef, answer: Split, parts: Sequence[str], shard: int
    ) -> list[str]:
        """What a shard's copy reads: its parts; its own sizes, and numbers of its own rows."""
        inputs = [
            part if position in answer.shape_inputs else self.writer.for_shard(part, shard)
            for position, part in enumerate(parts)
        ]
        for position, entries in answer.shape_inputs.items():
            value = self._known(data_inputs(node)[position])
            if value is None:
                raise RewriteError(f"splitting {node.name!r}: a size is not known beforehand")
            sizes = SizesInput(inputs[position], value, entries, "TensorList" in node.op)
            inputs[position] = self._shapes.of_shard(sizes, shard)
        for position, rows in answer.row_inputs.items() if shard else ():
            tensor = tensor_of(data_inputs(node)[position])
            dtype = self.decided.facts.dtype(tensor)
            assert not isinstance(self._shapes, OpenFunctionShapes)  # see shard_local
            both = [inputs[position], self._shapes.rows_before(rows, shard, dtype)]
            name = f"{op_of(tensor)}/rows/shard_{shard}"
            inputs[position] = self.writer.op("Sub", name, both, T=dtype)
        return inputs

    def _add_op(
        self, node: NodeDef, alike: NodeDef, name: str, inputs: list[str], shard: int | None
    ) -> NodeDef:
        """Adds an op, or a shard's copy of it, with all that it waits for and lies beside."""
        waits = [*self.tensors.as_wanted(node, inputs), *self._controls(node, shard)]
        new = self.writer.node(alike.op, name, waits)
        new.MergeFrom(alike)
        for other in beside(node):
            if other in self.copies:
                if shard is None:
                    continue  # a whole op can't lie beside all copies of another one
                [other] = self.stand_for(other, shard)
            new.attr["_class"].list.s.append(f"loc:@{other}".encode())
        return new

    def _add_answers(self, node: NodeDef) -> None:
        """Adds what an op says of the shapes of whole tensors that are there in parts."""
        facts, controls = self.decided.facts, self._controls(node, None)
        for index, tensor in enumerate(map(tensor_of, data_inputs(node))):
            state = of_shape = self.decided.state_of_tensor[tensor]
            if isinstance(state, Listed):
                of_shape = state.element or WHOLE
            answer = self._known(f"{node.name}:{index}")
            assert answer is not None
            rank, dtype = len(facts.shape(tensor) or ()), facts.dtype(tensor)
            always = self.tensors.in_every_run(tensor, answer.dtype)
            whole = WholeTensor(of_shape, rank, dtype, answer, *always)
            name = node.name
            # In a function the first has the op's own name, as what becomes of any op has there.
            if node.op == "ShapeN" and (index or name not in self.copies):
                name = self.writer.free_name(f"{node.name}/{index}")
                self.said.setdefault(node.name, []).append(name)
            said = self._shapes.of_whole(node, name, self.tensors.parts(tensor, state)[0], whole)
            if not index:
                self.writer.graph_def.node[-1].input.extend(controls)
            self.tensors.set_whole(f"{node.name}:{index}", said)

    def _known(self, name: str) -> np.ndarray | None:
        """The value of a tensor of the old graph that no run can change."""
        return self.decided.facts.value(tensor_of(name))

    def _outputs(self, node: NodeDef) -> list[str]:
        count = len(self.decided.facts.dtype_of[node.name])
        return [f"{node.name}:{index}" for index in range(count)]

    def _is_of_parts(self, node: NodeDef) -> bool:
        """Whether all is known that is said of tensors, of which some are there in parts."""
        states = self.decided.state_of_tensor
        is_of_parts = any(states[tensor_of(name)] != WHOLE for name in data_inputs(node))
        return is_of_parts and all(self._known(t) is not None for t in self._outputs(node))

    def _weighted(self, tensor: str, part: str, shard: int) -> str:
        """The average over a part, times the part's share of the batch."""
        dtype = self.decided.facts.dtype(tensor)
        share = self._shapes.share(shard, dtype)
        return self.writer.op("Mul", f"{op_of(part)}/weighted", [part, share], T=dtype)

    def _controls(self, node: NodeDef, shard: int | None) -> list[str]:
        """Control inputs: a copy waits for the copy of its own shard, a whole op for all."""
        waits = [name[1:] for name in node.input if name.startswith("^")]
        return [*dict.fromkeys(f"^{op}" for wait in waits for op in self.stand_for(wait, shard))]

    def stand_for(self, op: str, shard: int | None) -> Sequence[str]:
        """What runs when an op of the old graph runs; of copies that of a shard, or all."""
        if op in self.copies:
            copies = self.copies[op]
            return copies if shard is None else [copies[self._shards.index(shard)]]
        return self.said.get(op, [op])[:1]


def _of_all_copies(node: NodeDef, answer: Split | None = None) -> NodeDef:
    """A NodeDef with no more than what all copies of an op have of it."""
    attributes = attributes_of_copies(node, answer)
    kept = {key: value for key, value in attributes.items() if key not in _DERIVED}
    return type(node)(op=type_of_copies(node, answer), device=node.device, attr=kept)
