"""Which ops have an effect beside their outputs, and which variables they read and write."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from graphs.building.op_outputs import op_definition
from graphs.flat_graph import FlatGraph
from graphs.function_library import reached_functions
from graphs.names import data_inputs, op_of, parse_input
from graphs.protos import Library, NodeDef, OpDef

_MAY_BE_REPEATED = frozenset({"ReadVariableOp", "VarHandleOp", "ResourceGather", "VariableShape"})
_RUN_FUNCTIONS = frozenset({"While", "If", "Case", "StatefulPartitionedCall"})
_LOOKED_INTO = _RUN_FUNCTIONS | {"Assert"}
"""What only asserts may be left out; what runs functions does what these do."""


def has_no_effect(node: NodeDef, library: Library) -> bool:
    """Whether an op may run once for each shard where it ran once."""
    if node.op not in _RUN_FUNCTIONS:
        if node.op in library:
            return False
        if op_definition(node.op, node.name).is_stateful and node.op not in _MAY_BE_REPEATED:
            return False
    return all(
        inner.op in library or has_no_effect(inner, {})
        for function in reached_functions([node], library)
        for inner in library[function].node_def
    )


def _effect_in(function: str, library: Library) -> str:
    """The type of an op that changes something, though nothing that is returned may need it.

    A function that TensorFlow runs as one runs such ops, whether it lists them (`control_ret`) or
    not; a shard's copy of it has none but what its results are made of.
    """
    for each in (function, *reached_functions(library[function].node_def, library)):
        for node in library[each].node_def:
            if node.op in library or node.op in _LOOKED_INTO:
                continue
            op = op_definition(node.op, node.name)
            is_stateful = op.is_stateful and node.op not in _MAY_BE_REPEATED
            if is_stateful or any(argument.is_ref for argument in op.input_arg):
                return str(node.op)
    return ""


_READ = "ReadVariableOp"
NEVER_WRITE = frozenset({_READ, "ResourceGather", "ResourceGatherNd", "VariableShape"})
Variable = tuple[bytes, bytes, int]
"""What tells variables apart: container, name and dtype."""


def uses_of_variables(
    flat: FlatGraph, is_wanted: Callable[[NodeDef], bool]
) -> tuple[dict[Variable, list[str]], dict[Variable, set[str]]]:
    """{variable: its readers that are wanted and may be changed}, {variable: what may write it}.

    Args:
      is_wanted: whether a reader of a variable's handle is one of those.
    """
    variable_of = {
        node.name: variable_of_handle(node)
        for node in flat.graph_def.node
        if node.op == "VarHandleOp"
    }
    fixed = {op_of(fetch) for fetch in flat.fetches} | flat.unit_of_node.keys()
    fixed |= flat.share_of_node.keys() | flat.after_of_node.keys()
    fixed.update(name for names in flat.after_of_node.values() for name in names)
    readers: dict[Variable, list[str]] = defaultdict(list)
    writers: dict[Variable, set[str]] = defaultdict(set)
    for node in flat.graph_def.node:
        for name in data_inputs(node):
            variable = variable_of.get(parse_input(name).op)
            if variable is None:
                continue
            if node.op not in NEVER_WRITE:
                writers[variable].add(node.name)
            elif node.name in fixed or not is_wanted(node):
                continue
            elif node.attr["dtype"].type == variable[2]:
                readers[variable].append(node.name)
    return readers, writers


def variable_of_handle(node: NodeDef) -> Variable:
    """The variable of a VarHandleOp; several ops may hold a handle of one."""
    name = node.attr["shared_name"].s if "shared_name" in node.attr else b""
    container = node.attr["container"].s if "container" in node.attr else b""
    return container, name or node.name.encode(), node.attr["dtype"].type


def has_effect(node: NodeDef, library: Library) -> bool:
    """Whether something is another one after an op has run."""
    if node.op == "Assert" or _holds_state(node, library):
        return False
    if not has_no_effect(node, library):
        return True
    # What takes a reference (a variable's, a queue's) changes it, though it may not say so.
    return any(each.is_ref for each in op_definition(node.op, node.name).input_arg)


def changes_state(node: NodeDef, library: Library) -> bool:
    """Whether an op may change a variable, a table, or what a queue or a data set gives next."""
    if not has_effect(node, library):
        return False
    if node.op in library or reached_functions([node], library):
        return True
    return _has_handle(op_definition(node.op, node.name).input_arg)


def _holds_state(node: NodeDef, library: Library) -> bool:
    """Whether an op only says where a state lies that outlives the step: a variable, a table.

    Some tables take what their keys may not be. Outside of the step's function, they could not
    wait for what is in it.
    """
    if not node.input:
        return True
    if node.op in library:
        return False
    definition = op_definition(node.op, node.name)
    is_shared = any(attr.name == "shared_name" for attr in definition.attr)
    return (
        is_shared and _has_handle(definition.output_arg) and not _has_handle(definition.input_arg)
    )


def _has_handle(arguments: Iterable[OpDef]) -> bool:
    from tensorflow.core.framework import types_pb2

    return any(each.is_ref or each.type == types_pb2.DT_RESOURCE for each in arguments)
