"""Finds small whole ops that every shard had better compute for itself.

A sum over the batch that all shards read (the statistics of a batch normalisation, the divisor of
a loss) would go to one device and back: two messages one after the other. Where every shard sums
all terms itself, each term goes straight to where it is read: one message. The same holds for the
few small ops between such a sum and the shards' ops, and for constants and what is computed of
nothing else, which then never travel. A large sum is made once: the norm of a gradient is sent, not
the gradient to where its norm is read.
"""

from collections.abc import Mapping

from graphs.building.op_outputs import op_definition
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, op_of, parse_input
from rewrite.split.constant_folding import DEFAULTS
from rewrite.split.decision import MOST_BYTES, Answer, Split
from rewrite.split.states import WHOLE, Partial, State

MOST_CONSTANT_BYTES = 1 << 10


def repeated_ops(
    flat: FlatGraph,
    properties: TensorProperties,
    answers: Mapping[str, Answer],
    states: Mapping[str, State],
    kept_whole: Mapping[str, str],
) -> dict[str, Split]:
    """{op: the answer that gives each shard its own copy of all of it}.

    Args:
      answers: what becomes of each op so far.
      kept_whole: ops that must stay one.
    """
    small: set[str] = set()  # ops whose values every shard can have for itself
    found: set[str] = set()
    fixed: set[str] = set()  # constants, and what is computed of them: TensorFlow folds it
    for node in flat.graph_def.node:
        name = node.name
        answer = answers[name]
        if isinstance(answer, Split) or answer.outputs:  # that was left whole
            continue
        if name in flat.unit_of_node or node.op in DEFAULTS or not _is_small(node, properties):
            continue
        may_repeat = name not in kept_whole
        if node.op == "Const":
            # A constant may wait for an op, as those of gradients do: each copy waits for its own.
            small.update([name] if may_repeat else [])
            fixed.update([name] if not node.input else [])
            continue
        sources = [parse_input(each) for each in node.input]
        if any(source.output < 0 for source in sources):
            continue
        terms = [
            isinstance(states[s.tensor], Partial) and properties.num_bytes(s.tensor) <= MOST_BYTES
            for s in sources
        ]
        is_fixed = bool(sources) and all(s.op in fixed for s in sources)
        repeats = any(s.op in found for s in sources) or any(terms) or is_fixed
        own = (term or s.op in small for s, term in zip(sources, terms, strict=True))
        if not repeats or op_definition(node.op, name).is_stateful:
            continue
        fixed.update([name] if is_fixed else [])
        if may_repeat and all(own):
            small.add(name)
            found.add(name)
    wanted = _read_by_shards(flat, answers, small - _read_otherwise(flat, answers, fixed))
    return {
        node.name: Split(
            (WHOLE,) * len(data_inputs(node)), (WHOLE,) * len(properties.dtype_of[node.name])
        )
        for node in flat.graph_def.node
        if node.name in wanted
    }


def _read_otherwise(flat: FlatGraph, answers: Mapping[str, Answer], fixed: set[str]) -> set[str]:
    """Which ops of constants are read by anything but each other and shards that want all of it."""
    others = {op_of(fetch) for fetch in flat.fetches}
    for node in flat.graph_def.node:
        answer = answers[node.name]
        for position, name in enumerate(node.input):
            source = parse_input(name)
            if isinstance(answer, Split):
                is_data = source.output >= 0 and position not in answer.shape_inputs
                is_alike = is_data and answer.inputs[position] == WHOLE
            else:
                is_alike = node.name in fixed
            if not is_alike:
                others.add(source.op)
    return {name for name in others & fixed if flat.nodes[name].op != "Const"}


def _is_small(node: object, properties: TensorProperties) -> bool:
    name, op = node.name, node.op  # type: ignore[attr-defined]
    most = MOST_CONSTANT_BYTES if op == "Const" else MOST_BYTES
    shapes = properties.shape_of[name]
    is_known = all(shape is not None and min(shape, default=0) >= 0 for shape in shapes)
    if not shapes or not is_known or "variant" in properties.dtype_of[name]:
        return False  # what a list will hold is not in its bytes
    return max(properties.bytes_of[name]) <= most


def _read_by_shards(flat: FlatGraph, answers: Mapping[str, Answer], small: set[str]) -> set[str]:
    """Which of them an op reads that has a copy for each shard, or is one of them itself."""
    wanted: set[str] = set()
    for node in reversed(flat.graph_def.node):
        answer = answers[node.name]
        if isinstance(answer, Split):
            cut = {i for i, state in enumerate(answer.inputs) if state != WHOLE}
            skipped = cut.union(answer.shape_inputs)
        elif node.name in wanted:
            skipped = set()
        else:
            continue
        for position, name in enumerate(node.input):
            if not name.startswith("^") and position not in skipped:
                wanted.update({parse_input(name).op} & small)
    return wanted
