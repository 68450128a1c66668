"""Batch normalisations that were taken apart, each with its gradients: what is run to prove them.

The fused ops are cut out of the step as it was, what took their place out of the step as it is;
both are fed the same, at the step's own shapes. All other ops have to be as they were.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, parse_input, tensor_of
from graphs.protos import NodeDef, placeholder
from rewrite.pass_base import RewriteError
from rewrite.split.decision import GRADIENTS, NORMS
from rewrite.split.prove.ops.op_case import bare_op

MOST_ELEMENTS = 2**20
"""Of one tensor; of larger images fewer are fed: each is normalised alike."""
_PASSING = frozenset({"Identity", "IdentityN"})
_TENSORS = 8
_RESULTS = 3
"""Outputs that somebody else than a gradient reads."""


@dataclasses.dataclass(frozen=True)
class NormCase:
    """A batch normalisation with its gradients.

    Attributes:
      name: of the first forward op that is so.
      fused, apart: serialized graphs, fed placeholders among them.
      feeds: {placeholder: (its shape, its dtype)}.
      outputs: (tensor of `fused`, the tensor of `apart` that took its place).
    """

    name: str
    fused: bytes
    apart: bytes
    feeds: Mapping[str, tuple[tuple[int, ...], str]]
    outputs: Sequence[tuple[str, str]]
    kind: ClassVar[str] = "batch normalisation"

    @property
    def work(self) -> float:
        """How many elements are fed: an operation or some for each."""
        return float(sum(math.prod(shape) for shape, _ in self.feeds.values()))

    @property
    def num_bytes(self) -> int:
        """What it takes to run it fused and apart, which has a tensor for each operation."""
        return int(self.work) * 4 * _TENSORS


def norm_cases(fused: FlatGraph, apart: FlatGraph, properties: TensorProperties) -> list[NormCase]:
    """One case for each distinct normalisation.

    Args:
      fused: the step as it was.
      apart: the step with normalisations taken apart.
      properties: of the tensors of `apart`.

    Raises:
      RewriteError: anything else is another one, too.
    """
    if fused is apart:
        return []
    chosen = {
        node.name
        for node in fused.graph_def.node
        if node.op in NORMS | GRADIENTS and _bare(node) != _bare(apart.nodes.get(node.name))
    }
    replaced = _replaced(fused, apart, chosen)
    found: dict[tuple[object, ...], NormCase] = {}
    for forward, ops in _groups(fused, chosen).items():
        key, case = _case(fused, apart, properties, forward, ops, replaced)
        found.setdefault(key, case)
    return list(found.values())


def _bare(node: NodeDef) -> bytes:
    return b"" if node is None else bare_op(node).SerializeToString(deterministic=True)


def _replaced(fused: FlatGraph, apart: FlatGraph, chosen: set[str]) -> dict[str, str]:
    """{tensor of an op that was taken apart: what is read instead}, as all readers agree.

    Who waits for such an op waits for the one that has its name.
    """
    replaced: dict[str, str] = {}

    def read(reader: str, old: str, new: str) -> None:
        is_replaced = op_of(old) in chosen and not old.startswith("^")
        if (replaced.setdefault(old, new) if is_replaced else old) != new:
            raise RewriteError(f"taking norms apart: {reader!r} reads {new!r} instead of {old!r}")

    for node in fused.graph_def.node:
        if node.name in chosen:
            continue
        other = apart.nodes.get(node.name)
        if other is None or _bare(node) != _bare(other) or len(node.input) != len(other.input):
            raise RewriteError(f"taking norms apart: {node.name!r} is another op")
        for old, new in zip(node.input, other.input, strict=True):
            read(node.name, _tensor(old), _tensor(new))
    for old, new in zip(fused.fetches, apart.fetches, strict=True):
        read("the run", old, new)
    return replaced


def _tensor(name: str) -> str:
    return name if name.startswith("^") else tensor_of(name)


def _groups(fused: FlatGraph, chosen: set[str]) -> dict[str, list[str]]:
    """{forward op: itself and its gradients, and what hands values from it to them}."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in chosen:
        if fused.nodes[name].op in NORMS:
            groups[name].append(name)
            continue
        passing, node, position = [], fused.nodes[name], 3
        while node.op not in NORMS:
            source = parse_input(node.input[position])
            node, position = fused.nodes[source.op], source.output
            passing.append(node.name)
        groups[node.name] += [name, *passing[:-1]]
    # What else passes on reserved values does so for these gradients, too.
    for ops in groups.values():
        todo = list(ops)
        while todo:
            for source in map(parse_input, data_inputs(fused.nodes[todo.pop()])):
                if source.op not in ops and _passes_on(fused, source.op, set(ops)):
                    ops.append(source.op)
                    todo.append(source.op)
    return groups


def _passes_on(fused: FlatGraph, op: str, ops: set[str]) -> bool:
    """Whether an op passes on what some ops give, and nothing else."""
    sources = [parse_input(name).op for name in data_inputs(fused.nodes[op])]
    is_passing = fused.nodes[op].op in _PASSING
    return is_passing and all(s in ops or _passes_on(fused, s, ops) for s in sources)


def _case(
    fused: FlatGraph,
    apart: FlatGraph,
    properties: TensorProperties,
    forward: str,
    ops: Sequence[str],
    replaced: Mapping[str, str],
) -> tuple[tuple[object, ...], NormCase]:
    """The case, and what tells it from others."""
    fed = dict(_fed(fused, ops, properties))
    outputs = [
        (old, new)
        for old, new in sorted(replaced.items())
        if op_of(old) in ops and int(old.rpartition(":")[2]) < _RESULTS
    ]
    feeds = {f"feed_{number}": each for number, each in enumerate(fed.values())}
    names = dict(zip(fed, feeds, strict=True))
    inside = set(ops) | (apart.nodes.keys() - fused.nodes.keys())
    before = _cut_out(fused, [old for old, _ in outputs], set(ops), names, feeds)
    after = _cut_out(apart, [new for _, new in outputs], inside, names, feeds)
    order = [op for op in ops if fused.nodes[op].op not in _PASSING]
    key = (
        *sorted(_bare(fused.nodes[op]) for op in order),
        *((shape, dtype) for shape, dtype in feeds.values()),
        *((fused.nodes[op_of(old)].op, old.rpartition(":")[2]) for old, _ in outputs),
    )
    return key, NormCase(forward, before, after, feeds, outputs)


def _fed(
    fused: FlatGraph, ops: Sequence[str], properties: TensorProperties
) -> Iterator[tuple[str, tuple[tuple[int, ...], str]]]:
    """What the ops read from outside: the tensor, its shape, cut to fewer images, and dtype."""
    for op in sorted(ops, key=list(fused.nodes).index):
        for name in data_inputs(fused.nodes[op]):
            if op_of(name) in ops:
                continue
            shape = tuple(properties.shape(name) or ())
            if len(shape) > 1:
                each = math.prod(shape[1:])
                shape = (min(shape[0], max(2, MOST_ELEMENTS // each)), *shape[1:])
            yield tensor_of(name), (shape, properties.dtype(name))


def _cut_out(
    flat: FlatGraph,
    outputs: Sequence[str],
    inside: set[str],
    names: Mapping[str, str],
    feeds: Mapping[str, tuple[tuple[int, ...], str]],
) -> bytes:
    """The ops that make some tensors of what is fed, all of them from `inside`."""
    graph_def = type(flat.graph_def)(versions=flat.graph_def.versions)
    graph_def.node.extend(placeholder(name, dtype, shape) for name, (shape, dtype) in feeds.items())
    todo, done = [op_of(tensor) for tensor in outputs], set[str]()
    while todo:
        name = todo.pop()
        if name in done:
            continue
        if name not in inside:
            raise RewriteError(f"taking norms apart: {outputs[0]!r} is made of {name!r}")
        done.add(name)
        node = graph_def.node.add()
        node.CopyFrom(flat.nodes[name])
        node.device = ""
        node.attr.pop("_class", None)
        inputs = [_tensor(each) for each in data_inputs(node)]
        node.input[:] = [names.get(tensor, tensor) for tensor in inputs]
        todo += [op_of(tensor) for tensor in inputs if tensor not in names]
    return graph_def.SerializeToString()
