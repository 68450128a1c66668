"""The distinct split ops of a step, each of which is proven once.

TensorLists and Optionals are made of, and compared as, what they hold.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.flat_graph import FlatGraph
from graphs.function_library import named_functions
from graphs.names import data_inputs, parse_input, source_of, tensor_of
from graphs.protos import NodeDef, attribute, shape_of
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import DecidedGraph, Split, attributes_of_copies, type_of_copies
from rewrite.split.list_facts import Element, TensorFacts
from rewrite.split.prove.ops.op_case import CaseInput, OpCase, Shape, bare_op
from rewrite.split.states import (
    WHOLE,
    Listed,
    Optioned,
    Partial,
    Sharded,
    State,
    Whole,
    shard_sizes,
)

_FLOAT, _VARIANT = 1, 21  # tensorflow.DataType
_LENGTH = 4
"""The size that is made up for a dimension that is not known before the run."""


def op_cases(flat: FlatGraph, decisions: Decisions, num_shards: int) -> list[OpCase]:
    """One case for each distinct split op: type, attributes, shapes, states and known inputs."""
    first: dict[tuple[object, ...], OpCase] = {}
    count: Counter[tuple[object, ...]] = Counter()
    for key, case in _keyed(flat, decisions, shard_sizes(decisions.batch, num_shards)):
        count[key] += 1
        first.setdefault(key, case)
    return [dataclasses.replace(case, count=count[key]) for key, case in first.items()]


def _keyed(
    flat: FlatGraph, decided: DecidedGraph, sizes: tuple[int, ...]
) -> Iterator[tuple[tuple[object, ...], OpCase]]:
    """What tells cases apart, and the case; of ops in split functions, too."""
    for node in flat.graph_def.node:
        answer = decided.answer_of_op.get(node.name)
        if not isinstance(answer, Split) or (node.op == "Const" and answer.is_repeated):
            continue  # a copy of a constant is the constant
        if node.op == "VarHandleOp" or reads_pieces(decided, node, answer):
            continue  # what becomes of variables, whole steps show
        for body in answer.bodies.values():
            yield from _keyed(body.body.flat, body, sizes)
        if answer.bodies:
            continue
        if any(isinstance(state, Optioned) for state in (*answer.inputs, *answer.outputs)):
            given, state, shape = optional_case(decided.facts, node, answer, sizes)
            bare = with_vectors(bare_op(node))
            key = (bare.SerializeToString(deterministic=True), given.key, state)
            case = OpCase(
                node.name, 1, bare, bare, (given,), (state,), {}, [shape], sizes, False, None
            )
            yield key, case
            continue
        inputs = tuple(_inputs(flat, decided, node, answer, sizes))
        lists = lists_made(decided.facts, node, answer, sizes)
        bare = bare_op(node)
        attributes = attributes_of_copies(bare, answer)
        copy = type(bare)(op=type_of_copies(node, answer), attr=attributes)
        written = [n.SerializeToString(deterministic=True) for n in (bare, copy)]
        key = (*written, *(i.key for i in inputs), answer.outputs, answer.is_mean, *lists.items())
        shapes = decided.facts.shape_of[node.name]
        case = OpCase(
            node.name, 1, bare, copy, inputs, tuple(map(of_rows, answer.outputs)), lists, shapes,
            sizes, answer.is_mean, flat.graph_def.library if any(named_functions(bare)) else None,
        )  # fmt: skip
        yield key, case


def reads_pieces(decided: DecidedGraph, node: NodeDef, answer: Split) -> bool:
    """Whether an op takes a variable that is in pieces."""
    pairs = zip(map(tensor_of, data_inputs(node)), answer.inputs, strict=True)
    return any(isinstance(s, Sharded) and decided.facts.dtype(t) == "resource" for t, s in pairs)


def _inputs(
    flat: FlatGraph, decided: DecidedGraph, node: NodeDef, answer: Split, sizes: tuple[int, ...]
) -> Iterator[CaseInput]:
    tensors, facts = map(tensor_of, data_inputs(node)), decided.facts
    for position, (tensor, state) in enumerate(zip(tensors, answer.inputs, strict=True)):
        dtype = facts.dtype(tensor)
        if dtype == "resource":
            yield _handle(flat, tensor, state)
            continue
        if dtype == "variant":
            yield list_input(facts, node, tensor, state, sizes)
            continue
        value = facts.value(tensor)
        sizes_at = answer.shape_inputs.get(position, {}) if value is not None else {}
        if value is not None and "float" in dtype and not (value.size == 1 and value.all()):
            value = None  # random numbers prove more than zeros, and are alike for many ops
        shape, rows = facts.shape(tensor), answer.row_inputs.get(position)
        yield CaseInput(shape, dtype, state, value, sizes_at, rows=rows)


def _handle(flat: FlatGraph, name: str, state: State) -> CaseInput:
    """The variable behind a handle; no shape where there is none."""
    producer = flat.nodes[parse_input(source_of(name, flat.nodes, op_types.HANDLE)).op]
    if producer.op != "VarHandleOp":
        return CaseInput(None, "resource", state)
    shape = shape_of(producer.attr["shape"].shape)
    return CaseInput(shape, tf.as_dtype(producer.attr["dtype"].type).name, state, is_handle=True)


def list_input(
    facts: TensorFacts, node: NodeDef, tensor: str, state: State, sizes: Sequence[int]
) -> CaseInput:
    """A list that an op reads; of unknown shape where nothing says what its elements are."""
    element = facts.elements.get(tensor, Element())
    shape = element.shape
    if shape is None:
        shape = _element_shape(facts, node, state, sizes)
    dtype = tf.as_dtype(node.attr["element_dtype"].type) if "element_dtype" in node.attr else None
    if shape is None or dtype == tf.variant:
        return CaseInput(None, "variant", state)
    name = "float32" if dtype is None else dtype.name
    rows = (_LENGTH if element.length is None else element.length, *shape)
    return CaseInput(rows, name, of_rows(state), is_list=True)


def lists_made(
    facts: TensorFacts, node: NodeDef, answer: Split, sizes: Sequence[int]
) -> dict[int, Shape]:
    """{output of an op that is a list: the shape of an element}."""
    found = {}
    for index, dtype in enumerate(facts.dtype_of[node.name]):
        if dtype == "variant":
            shape = facts.elements.get(f"{node.name}:{index}", Element()).shape
            if shape is None:
                shape = _element_shape(facts, node, answer.outputs[index], sizes)
            found[index] = shape
    return found


def of_rows(state: State) -> State:
    """The state of a list's elements in one tensor; any other state as it is."""
    if not isinstance(state, Listed):
        return state
    element = state.element
    return WHOLE if element is None else dataclasses.replace(element, axis=element.axis + 1)


def optional_case(
    facts: TensorFacts, node: NodeDef, answer: Split, sizes: Sequence[int]
) -> tuple[CaseInput, State, Shape]:
    """What an op of an Optional reads; the state and the shape of what it makes.

    What an Optional holds goes in and comes out as it is, whatever it is. So where it is a list, or
    is not known, a vector of the batch stands for it.
    """
    is_new, [given], [made] = node.op == "OptionalFromValue", answer.inputs, answer.outputs
    held = given.held if isinstance(given, Optioned) else given
    tensor = {"OptionalFromValue": data_inputs(node)[0], "OptionalGetValue": node.name}.get(node.op)
    dtype = facts.dtype(tensor_of(tensor)) if tensor else "variant"
    shape = facts.shape(tensor_of(tensor)) if tensor else None
    if not isinstance(held, Partial | Sharded) and held != WHOLE:
        held = Sharded(0)
    assert isinstance(held, Partial | Sharded | Whole)
    if dtype == "variant":
        axis = held.axis if isinstance(held, Sharded) else 0
        size = held.size(sum(sizes)) if isinstance(held, Sharded) else _LENGTH
        dtype, shape = "float32", ((_LENGTH,) * axis) + (size,)
    is_value = isinstance(made, Optioned) or node.op == "OptionalGetValue"
    case = CaseInput(shape, dtype, held, is_optional=not is_new)
    return case, held if is_value else WHOLE, shape if is_value else ()


def with_vectors(node: NodeDef) -> NodeDef:
    """An op of an Optional that holds what `optional_case` says; in place.

    Its copies don't say how large their part is, which the op may say of the whole.
    """
    for name in ("Toutput_types", "output_types"):
        if name in node.attr:
            types = node.attr[name].list.type
            types[:] = [_FLOAT if each == _VARIANT else each for each in types]
    if "output_shapes" in node.attr:
        for shape in attribute(node, "output_shapes").list.shape:
            shape.Clear()
            shape.unknown_rank = True
    return node


def _element_shape(facts: TensorFacts, node: NodeDef, state: State, sizes: Sequence[int]) -> Shape:
    """The shape of a list's elements where an op says it; what it leaves open is made up."""
    inputs = [tensor_of(name) for name in data_inputs(node)]
    if node.op in ("TensorListSetItem", "TensorListPushBack"):
        return facts.shape(inputs[-1])
    said = facts.value(inputs[0]) if node.op in ("TensorListReserve", "EmptyTensorList") else None
    if said is None or not isinstance(state, Listed):
        return None
    cut = state.element
    rank = len(said) if said.ndim else 1 + (cut.axis if cut else 0)
    shape = tuple(said.tolist()) if said.ndim else (-1,) * rank
    size = cut.size(sum(sizes)) if cut else _LENGTH
    return tuple(
        (size if cut and axis == cut.axis else _LENGTH) if each < 0 else each
        for axis, each in enumerate(shape)
    )
