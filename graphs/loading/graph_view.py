"""A GraphDef's main graph and library with the look-ups that choosing a run needs."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from graphs.building.op_outputs import op_definition
from graphs.errors import FetchError, ModelError
from graphs.host.did_you_mean import nearest
from graphs.loading.corruption import require_sound
from graphs.names import op_of

PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
VARIABLE_OPS = frozenset({"VarHandleOp", "VariableV2", "Variable"})
_PASS_ON = frozenset({"Identity", "RefIdentity"})


class GraphView:
    """Look-ups in one GraphDef, which must not change while this lives."""

    def __init__(self, graph_def: Any):
        """Raises ModelError where two ops have one name or an input does not exist."""
        self.graph_def = graph_def
        self.nodes: Mapping[str, Any] = {node.name: node for node in graph_def.node}
        self.library: Mapping[str, Any] = {
            function.signature.name: function for function in graph_def.library.function
        }
        if len(self.nodes) < len(graph_def.node):
            raise ModelError(
                "reading the graph: two ops have the same name; names must be unique, "
                "save the model again"
            )
        for function in graph_def.library.function:
            for node in function.node_def:
                require_sound(node, self.library)
        for node in graph_def.node:
            require_sound(node, self.library)
            for name in node.input:
                if op_of(name) not in self.nodes:
                    raise ModelError(
                        f"reading the graph: op {node.name!r} uses {name!r}, which is not "
                        "defined; the model is damaged or was cut, save it again"
                    )

    @functools.cached_property
    def users(self) -> Mapping[str, Sequence[str]]:
        """{op: ops that use one of its outputs or wait for it}."""
        users: dict[str, list[str]] = {name: [] for name in self.nodes}
        for node in self.graph_def.node:
            for source in dict.fromkeys(op_of(name) for name in node.input):
                users[source].append(node.name)
        return users

    def ancestors(self, fetches: Iterable[str], fed: Collection[str] = ()) -> dict[str, None]:
        """Ops that running `fetches` runs, in no particular order but always the same.

        Args:
          fetches: tensors "op:i" or ops.
          fed: ops whose outputs are all fed: they are reached, what they use is not.

        Raises:
          FetchError: an op of `fetches` is not in the main graph.
        """
        fetches = list(fetches)
        for fetch in fetches:
            if op_of(fetch) not in self.nodes:
                self.check_tensor(fetch, "fetch")
        pending = [op_of(fetch) for fetch in fetches]
        reached = dict.fromkeys(pending)
        while pending:
            name = pending.pop()
            if name in fed:
                continue
            for source in self.nodes[name].input:
                op = op_of(source)
                if op not in reached:
                    reached[op] = None
                    pending.append(op)
        return reached

    def descendants(self, ops: Iterable[str]) -> set[str]:
        """`ops` and everything that uses or waits for them, directly or not."""
        pending = list(ops)
        reached = set(pending)
        while pending:
            for user in self.users[pending.pop()]:
                if user not in reached:
                    reached.add(user)
                    pending.append(user)
        return reached

    def variable_of(self, tensor: str) -> str:
        """The variable op that a tensor is the handle or reference of, or an empty string."""
        op = op_of(tensor)
        while self.nodes[op].op in _PASS_ON and self.nodes[op].input:
            op = op_of(self.nodes[op].input[0])
        return op if self.nodes[op].op in VARIABLE_OPS else ""

    def check_tensor(self, name: str, what: str) -> None:
        """Checks that a tensor "op:i" or an op is in the main graph.

        Raises:
          FetchError: it is not.
        """
        op, _, index = name.partition(":")
        if op not in self.nodes:
            raise FetchError(
                f"looking up the {what} {name!r}: the graph has no op {op!r}"
                f"{nearest(op, self.nodes)}; name one of its {len(self.nodes):,} ops"
            )
        if index and not index.isdigit():
            raise FetchError(
                f"looking up the {what} {name!r}: wanted OP or OP:OUTPUT with a number, "
                f"such as {op + ':0'!r}"
            )
        if index and int(index) >= (count := num_outputs(self.nodes[op], self.library)):
            raise FetchError(
                f"looking up the {what} {name!r}: {op!r} ({self.nodes[op].op}) has {count} outputs"
                f"{', it can only be run: name it without an index' if not count else ''}"
            )


def data_inputs(node: Any) -> list[str]:
    """The inputs of a node that are tensors, in order."""
    return [name for name in node.input if not name.startswith("^")]


def callees(node: Any, library: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Functions that a node runs, and at which of its inputs their arguments begin.

    The first input of If and Case is not an argument.
    """
    first = 1 if node.op in ("If", "StatelessIf", "Case", "StatelessCase") else 0
    if node.op in library:
        return [(node.op, 0)]
    names = []
    for value in node.attr.values():
        if value.HasField("func"):
            names.append(value.func.name)
        elif value.HasField("list"):
            names.extend(func.name for func in value.list.func)
    return [(name, first) for name in names if name in library]


def num_outputs(node: Any, library: Mapping[str, Any]) -> int:
    """How many tensors a node makes.

    Raises:
      ModelError: this TensorFlow doesn't know the op.
    """
    if node.op in library:
        return len(library[node.op].signature.output_arg)
    count = 0
    for argument in op_definition(node.op, node.name).output_arg:
        if argument.number_attr:
            count += node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            count += len(node.attr[argument.type_list_attr].list.type)
        else:
            count += 1
    return count


def argument_positions(function: Any) -> dict[str, int]:
    """{argument name: position} of a FunctionDef."""
    return {argument.name: i for i, argument in enumerate(function.signature.input_arg)}


def body_argument(nodes: Mapping[str, Any], tensor: str) -> str:
    """The argument that a tensor of a function body is, through identities, else "".

    Args:
      nodes: the nodes of the body by name.
      tensor: as in their inputs.
    """
    name = op_of(tensor)
    while name in nodes and nodes[name].op in _PASS_ON and nodes[name].input:
        name = op_of(nodes[name].input[0])
    return "" if name in nodes else name


def dtype_name(enum: int, of: str) -> str:
    """The name of a DataType, references as what they refer to.

    Raises:
      ModelError: TensorFlow has no such type; `of` says what has it.
    """
    import tensorflow as tf

    try:
        return str(tf.as_dtype(enum).base_dtype.name)
    except TypeError as error:
        raise ModelError(
            f"reading the graph: {of} has the unknown dtype {enum}; the model is damaged or made "
            "by a newer TensorFlow"
        ) from error
