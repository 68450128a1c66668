"""Makes the graph of a split step from what was decided of each op."""

from collections.abc import Sequence

import numpy as np

from graphs import op_types
from graphs.flat_graph import FlatGraph
from graphs.host.time_limit import require_time
from graphs.names import data_inputs, op_of, parse_input, source_of, tensor_of
from graphs.protos import DType, NodeDef
from rewrite.pass_base import RewriteError
from rewrite.split.any_batch.input_assertions import (
    have_effects_wait,
    refuse_other_batches,
    refuse_other_shapes,
)
from rewrite.split.building.body_shapes import ShardNumbers
from rewrite.split.building.shard_functions import ShardFunctions
from rewrite.split.building.shard_shapes import FixedShapes, OpenShapes, ShardShapes, WholeTensor
from rewrite.split.building.step_tensors import StepTensors
from rewrite.split.constant_folding import SHAPE_OPS
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import NORMS, Split, attributes_of_copies, type_of_copies
from rewrite.split.effects import has_effect
from rewrite.split.node_writer import NodeWriter, TakenNames, of_known_width, wants_known_width
from rewrite.split.split_step import SplitStep
from rewrite.split.states import WHOLE, Partial, Sharded

_UNARY = {op for op, which in op_types.TAKES_OVER.items() if which == (0, (0,))}
_OF_ONE_SHAPE = (op_types.SAME | _UNARY) - NORMS
"""Ops whose one output is as large as their input 0, however large that is."""
_SIZES = {"Reshape": 1, "BroadcastTo": 1, "Fill": 0}
"""{op: the input that says how large its output is}."""


def build_step(
    flat: FlatGraph,
    decisions: Decisions,
    num_shards: int,
    advice: str = "",
    taken: TakenNames | None = None,
) -> SplitStep:
    """The split step.

    Args:
      flat: the unsplit step with its calls opened.
      decisions: what becomes of each op.
      num_shards: M, at least 2 and at most the batch size.
      advice: of a step that takes inputs of several sizes: what to do with what it refuses.
      taken: names that the model has beside the step's.
    """
    taken = taken or TakenNames()
    builder = _Builder(flat, decisions, num_shards, advice, taken)
    for node in flat.graph_def.node:
        require_time()
        builder.add(node)
    fetches = [builder.fetch(fetch) for fetch in flat.fetches]
    if builder.shapes.refusal:
        have_effects_wait(
            builder.writer.graph_def, builder.shapes.refusal, flat.library, flat.unit_of_node
        )
    graph_def, counts = builder.writer.graph_def, builder.tensors.counts
    graph_def.library.CopyFrom(flat.graph_def.library)
    graph_def.library.function.extend(builder.functions.functions)
    return SplitStep(
        graph_def, fetches, builder.writer.origin_of, {**builder.copies, **builder.said},
        counts["join"], counts["sum"], counts["cut"],
    )  # fmt: skip


class _Builder:
    """Adds the ops of a split step, one unsplit op after the other."""

    def __init__(
        self, flat: FlatGraph, decisions: Decisions, num_shards: int, advice: str, taken: TakenNames
    ):
        self.flat = flat
        self.properties = decisions.properties
        self.decisions = decisions
        self.num_shards = num_shards
        empty = type(flat.graph_def)(versions=flat.graph_def.versions)
        self.writer = NodeWriter(empty, (*flat.nodes, *taken.ops))
        self.copies = self._names_of_copies()
        self.said: dict[str, list[str]] = {}
        self.shapes = self._shapes(advice)
        self.tensors = StepTensors(self.writer, self.shapes, decisions, num_shards, flat)
        numbers = ShardNumbers(self.writer, self.shapes, num_shards)
        self.functions = ShardFunctions(
            flat.library, numbers, decisions.batch, num_shards, taken.functions
        )
        self._read_whole = self._ops_read_whole()
        fed = {op_of(spec.tensor) for spec in flat.feeds}
        self._after_effects = _after_effects(flat)
        self._not_fed = {name: node for name, node in flat.nodes.items() if name not in fed}

    def _names_of_copies(self) -> dict[str, list[str]]:
        """Free names, taken before any other op can take them."""
        return {
            name: [self.writer.free_name(f"{name}/shard_{m}") for m in range(self.num_shards)]
            for name, answer in self.decisions.answer_of_op.items()
            if isinstance(answer, Split)
        }

    def _ops_read_whole(self) -> set[str]:
        """The ops that a whole op reads, or that are fetched."""
        read = {op_of(fetch) for fetch in self.flat.fetches}
        for node in self.flat.graph_def.node:
            if not isinstance(self.decisions.answer_of_op[node.name], Split):
                read.update(op_of(name.removeprefix("^")) for name in node.input)
        return read

    def _shapes(self, advice: str) -> ShardShapes:
        decisions, dtype_of = self.decisions, self.properties.dtype
        refusals = refuse_other_shapes(self.writer, decisions.asked_of_feed, dtype_of, advice)
        if not decisions.is_open:
            return FixedShapes(self.writer, decisions.batch, self.num_shards, refusals)
        feed, axis = next(iter(decisions.axis_of_feed.items()))
        if feed in decisions.following:
            refusals += refuse_other_batches(
                self.writer, decisions.following, (feed, axis), dtype_of, advice, refusals[-1:]
            )
        self.writer.origin = op_of(feed)
        dtype = self.properties.dtype_of[op_of(feed)][0]
        few = (
            f"a batch of fewer than {self.num_shards} entries can't be split into "
            f"{self.num_shards} parts: give more, or {advice}; entries:"
        )
        return OpenShapes(self.writer, (feed, dtype), axis, self.num_shards, few, refusals)

    # -- ops -------------------------------------------------------------------------------------

    def add(self, node: NodeDef) -> None:
        """Adds what an unsplit op becomes."""
        self.writer.origin = node.name
        answer = self.decisions.answer_of_op[node.name]
        if isinstance(answer, Split):
            self._add_copies(node, answer)
        elif node.op in SHAPE_OPS and self._reads_parts(node) and self._is_known(node):
            self._add_shape(node)
        else:
            self._add_whole(node)

    def _add_whole(self, node: NodeDef) -> None:
        inputs = [self.tensors.whole(name) for name in data_inputs(node)]
        self._with_known_width(node, inputs)
        new = self.writer.node(node.op, node.name, [*inputs, *self._controls(node, None)])
        new.MergeFrom(_of_all_copies(node))
        self._lie_beside(node, new, None)
        for index in range(len(self.properties.dtype_of[node.name])):
            tensor = f"{node.name}:{index}"
            self.tensors.set_whole(tensor, tensor)
            state = self.decisions.state_of_tensor[tensor]
            if tensor in self.decisions.axis_of_feed:
                self.tensors.parts(tensor, state)

    def _add_copies(self, node: NodeDef, answer: Split) -> None:
        inputs = [
            self.tensors.parts(name, state)
            for name, state in zip(data_inputs(node), answer.inputs, strict=True)
        ]
        names, alike = self.copies[node.name], _of_all_copies(node, answer)
        for shard, name in enumerate(names):
            mine = [
                row[shard] if i in answer.shape_inputs else self.writer.for_shard(row[shard], shard)
                for i, row in enumerate(inputs)
            ]
            for position, entries in answer.shape_inputs.items():
                value = self._known(data_inputs(node)[position])
                if value is None:
                    raise RewriteError(f"splitting {node.name!r}: a size is not known beforehand")
                mine[position] = self.shapes.of_shard(
                    mine[position], value, entries, shard, "TensorList" in node.op
                )
            for position, rows in answer.row_inputs.items():
                mine[position] = self._rebased(
                    mine[position], data_inputs(node)[position], rows, shard
                )
            self._with_known_width(node, mine)
            waiting = [*mine, *self._controls(node, shard)]
            new = self.writer.node(type_of_copies(node, answer), name, waiting)
            new.MergeFrom(alike)
            self._lie_beside(node, new, shard)
            self.functions.adapt(new, answer, shard)
        if node.op == "Const" and node.name in self._read_whole:
            self._add_whole(node)  # so that whole ops read what they did before
        for index, state in enumerate(answer.outputs):
            tensor = f"{node.name}:{index}"
            if state == WHOLE:
                if node.name not in self._read_whole or node.op != "Const":
                    self.tensors.set_whole(tensor, f"{names[0]}:{index}")
                self.tensors.set_parts(tensor, WHOLE, [f"{name}:{index}" for name in names])
                continue
            parts = [f"{name}:{index}" for name in names]
            if answer.is_mean and isinstance(state, Partial):
                parts = [self._weighted(tensor, part, shard) for shard, part in enumerate(parts)]
            self.tensors.set_parts(tensor, state, parts)

    def _with_known_width(self, node: NodeDef, inputs: list[str]) -> None:
        """Has TensorFlow know as much of input 0 as it wants to."""
        if wants_known_width(node, self._known, self.flat.nodes):
            tensor = tensor_of(data_inputs(node)[0])
            shape, dtype = self.tensors.shape(tensor), self.tensors.dtype(tensor)
            inputs[0] = of_known_width(self.writer, inputs[0], shape, dtype)

    def _rebased(self, part: str, tensor: str, rows: Sharded, shard: int) -> str:
        """Numbers of rows, counted from the first one of a shard."""
        if not shard:
            return part
        dtype = self.tensors.dtype(tensor_of(tensor))
        start = self.shapes.rows_before(rows, shard, dtype)
        name = f"{op_of(tensor)}/rows/shard_{shard}"
        return self.writer.op("Sub", name, [part, start], T=dtype)

    def _add_shape(self, node: NodeDef) -> None:
        """What is said of a whole tensor's shape, though the tensor itself is in parts."""
        names: list[str] = []
        controls = self._controls(node, None)
        for index, name in enumerate(data_inputs(node)):
            tensor, answer = tensor_of(name), self._known(f"{node.name}:{index}")
            assert answer is not None
            state = self.decisions.state_of_tensor[tensor]
            rank = len(self.tensors.shape(tensor))
            shape, sizes = None, ""
            if op_of(tensor) not in self._after_effects:
                shape = self.decisions.shape_of_any(tensor)
                sizes = self._sizes_of(tensor, answer.dtype)
            whole = WholeTensor(state, rank, self.tensors.dtype(tensor), answer, shape, sizes)
            own = node.name if node.op != "ShapeN" else f"{node.name}/{index}"
            own = own if own == node.name else self.writer.free_name(own)
            part = self.tensors.parts(name, state)[0]
            said = self.shapes.of_whole(node, own, part, whole)
            if not names:
                self.writer.graph_def.node[-1].input.extend(controls)
            self.tensors.set_whole(f"{node.name}:{index}", said)
            names.append(own)
        if node.op == "ShapeN":
            self.said[node.name] = names

    def _sizes_of(self, tensor: str, number: DType) -> str:
        """The whole tensor that says how large this one is made; empty for none of that type."""
        made = self._not_fed.get(op_of(source_of(tensor, self._not_fed, _OF_ONE_SHAPE)))
        if made is None or made.op not in _SIZES:
            return ""
        sizes = tensor_of(data_inputs(made)[_SIZES[made.op]])
        value, is_whole = self._known(sizes), self.decisions.state_of_tensor[sizes] == WHOLE
        is_said = value is not None and value.dtype == number and value.min(initial=0) >= 0
        return self.tensors.whole(sizes) if is_whole and is_said else ""

    def _is_known(self, node: NodeDef) -> bool:
        count = len(self.properties.dtype_of[node.name])
        return all(self._known(f"{node.name}:{i}") is not None for i in range(count))

    def _known(self, name: str) -> np.ndarray | None:
        return self.decisions.values.value(tensor_of(name))

    def _reads_parts(self, node: NodeDef) -> bool:
        states = self.decisions.state_of_tensor
        return any(states[tensor_of(name)] != WHOLE for name in data_inputs(node))

    def _weighted(self, tensor: str, part: str, shard: int) -> str:
        """The average over a part, times the part's share of the batch."""
        dtype = self.tensors.dtype(tensor)
        name = f"{part.partition(':')[0]}/weighted"
        return self.writer.op("Mul", name, [part, self.shapes.share(shard, dtype)], T=dtype)

    def fetch(self, fetch: str) -> str:
        """What to fetch for an unsplit step's fetch; an op in copies is a new no-op after all."""
        if ":" in fetch:
            self.writer.origin = op_of(fetch)
            return self.tensors.whole(fetch)
        copies = self._stand_for(fetch, None)
        if copies == [fetch]:
            return fetch
        self.writer.origin = fetch
        name = self.writer.free_name(f"{fetch}/all")
        return self.writer.node("NoOp", name, [f"^{copy}" for copy in copies]).name

    # -- what a copy has of its op ---------------------------------------------------------------

    def _controls(self, node: NodeDef, shard: int | None) -> list[str]:
        """Control inputs: a copy waits for the copy of its own shard, a whole op for all."""
        controls: dict[str, None] = {}
        for name in node.input:
            if not name.startswith("^"):
                continue
            controls.update((f"^{op}", None) for op in self._stand_for(name[1:], shard))
        return list(controls)

    def _stand_for(self, op: str, shard: int | None) -> Sequence[str]:
        """What runs when an op of the unsplit step runs."""
        if op in self.copies:
            return self.copies[op] if shard is None else [self.copies[op][shard]]
        return self.said.get(op, [op])[:1]

    def _lie_beside(self, node: NodeDef, new: NodeDef, shard: int | None) -> None:
        """What an op has to lie beside; a copy beside the copy of its own shard."""
        for each in node.attr["_class"].list.s if "_class" in node.attr else ():
            name = each.decode().removeprefix("loc:@")
            if isinstance(self.decisions.answer_of_op.get(name), Split):
                if shard is None:
                    continue  # a whole op can't lie beside all copies of another one
                name = self.copies[name][shard]
            new.attr["_class"].list.s.append(f"loc:@{name}".encode())


def _of_all_copies(node: NodeDef, answer: Split | None = None) -> NodeDef:
    """A NodeDef with no more than what all copies of an op have of it."""
    alike = type(node)(device=node.device)
    for key, value in attributes_of_copies(node, answer).items():
        if key not in ("_class", "_output_shapes"):
            alike.attr[key].CopyFrom(value)
    return alike


def _after_effects(flat: FlatGraph) -> frozenset[str]:
    """Ops for which something with an effect runs, as it does for who asks how large they are."""
    after = {node.name for node in flat.graph_def.node if has_effect(node, flat.library)}
    num_known = -1
    while num_known < len(after):  # what closes a v1 loop comes later in the graph
        num_known = len(after)
        for node in flat.graph_def.node:
            if not after.isdisjoint(parse_input(name).op for name in node.input):
                after.add(node.name)
    return frozenset(after)
