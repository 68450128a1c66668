"""Functions that loops, conditionals and calls run, opened as graphs of their own."""

import copy
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphs import op_types
from graphs.building.known_tensors import Known
from graphs.building.op_outputs import output_names, signature_of
from graphs.building.pieces import CALL, argument_of_call, opened_call
from graphs.building.shapes import TensorProperties, infer_known
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.names import data_inputs, op_of, parse_input, tensor_of
from graphs.protos import GraphDef, Library, NodeDef
from rewrite.split.constant_folding import KnownValues
from rewrite.split.effects import has_no_effect

OF_ONE_FUNCTION = frozenset({"api_implements", "api_preferred_device", "forward_function_name"})
OF_ONE_FUNCTION |= {"backward_function_name", "_construction_context", "_input_shapes"}
"""Attributes that only concern the function whose part another one is, not what it computes."""


@dataclasses.dataclass(frozen=True)
class Body:
    """A function as a graph.

    Attributes:
      function: its name.
      flat: its ops; its arguments are ops without inputs.
      properties: of its tensors.
      values: of tensors that no run can change.
      arguments: the tensors that stand for its arguments; not all need be in the graph.
      outputs: the tensors that it returns.
    """

    function: str
    flat: FlatGraph
    properties: TensorProperties
    values: KnownValues
    arguments: Sequence[str]
    outputs: Sequence[str]

    @functools.cached_property
    def effects(self) -> frozenset[str]:
        """Its ops that may not run once for each shard where they ran once."""
        library = self.flat.library
        return frozenset(n.name for n in self.flat.graph_def.node if not has_no_effect(n, library))

    def source(self, tensor: str) -> str:
        """Where a tensor comes from, through ops that pass on what they get."""
        nodes = self.flat.nodes
        while nodes[op_of(tensor)].op == "Identity":
            tensor = tensor_of(nodes[op_of(tensor)].input[0])
        return tensor


class Bodies:
    """Opens functions of a library, each for the same arguments only once.

    Attributes:
      decided: {all that counts for it: what became of a function, and of the lists that it uses}.
    """

    def __init__(self, graph_def: GraphDef):
        self.decided: dict[Any, Any] = {}
        self._graph_def, self._library = graph_def, library_of(graph_def)
        self._opened: dict[Any, Body | None] = {}

    def opened(self, function: str, arguments: Sequence[Known]) -> Body | None:
        """A function for such arguments; None where it can't be opened."""
        key = function, tuple(arguments)
        if key not in self._opened:
            try:
                graph_def = type(self._graph_def)(versions=self._graph_def.versions)
                flat, outputs = opened_call(graph_def, function, self._library, arguments)
                properties = infer_known(flat)
                values = KnownValues(flat, properties)
                names = [f"{argument_of_call(CALL, i)}:0" for i in range(len(arguments))]
                self._opened[key] = Body(function, flat, properties, values, names, outputs)
            except ModelError:  # it is damaged, or its arguments contradict it
                self._opened[key] = None
        return self._opened[key]


def functions_of(node: NodeDef, library: Library) -> dict[str, str]:
    """{attribute: function} of a unit that runs functions; a branch of a Case is "branches/i"."""
    found = {}
    of_op = ("f",) if node.op in op_types.CALLS else ("cond", "body", "then_branch", "else_branch")
    for key in of_op:
        if key in node.attr and node.attr[key].func.name in library:
            found[key] = node.attr[key].func.name
    if "branches" in node.attr:
        for index, branch in enumerate(node.attr["branches"].list.func):
            found[f"branches/{index}"] = branch.name
    return found


def alone(node: NodeDef) -> NodeDef:
    """An op of a function in which none has an effect: it waits for none, and lies beside none."""
    new = copy.deepcopy(node)
    new.input[:] = data_inputs(node)
    new.device = ""
    new.attr.pop("_class", None)
    return new


def waits_of_all(node: NodeDef) -> Sequence[str]:
    """The inputs that whatever an op does surely waits for: all, unless it runs functions.

    TensorFlow opens a function in the place of its call: an op of it then waits for the arguments
    that it takes, and for what the call waits for; one of a branch for the condition as well.
    """
    if node.op not in op_types.CONDITIONALS | op_types.LOOPS | op_types.CALLS:
        inputs: Sequence[str] = node.input
        return inputs
    first = 1 if node.op in op_types.CONDITIONALS else 0
    return [*node.input[:first], *(name for name in node.input[first:] if name.startswith("^"))]


def as_body(
    graph_def: GraphDef, argument_of: Mapping[str, str], returned: Sequence[str], library: Library
) -> tuple[list[NodeDef], list[str]]:
    """NodeDefs of a function body for the ops of a main graph, and what the function returns.

    Args:
      graph_def: the ops; what they read of each other is named "op:i".
      argument_of: {op that is left out: the function's argument that stands for its output 0}.
      returned: the tensors "op:i" that are to be returned.
      library: {name: FunctionDef} of functions that ops call by name.

    Raises:
      ValueError: an op reads an output that its producer doesn't have.
    """
    nodes = [node for node in graph_def.node if node.name not in argument_of]
    outputs = {node.name: output_names(node, library) for node in nodes}

    def named(tensor: str) -> str:
        op, index, _ = parse_input(tensor)
        return argument_of[op] if op in argument_of else f"{op}:{_output_name(outputs, op, index)}"

    body = []
    for node in nodes:
        new = copy.deepcopy(node)
        # An argument is there before the body runs.
        controls = [n for n in node.input if n.startswith("^") and n[1:] not in argument_of]
        new.input[:] = [*map(named, data_inputs(node)), *controls]
        body.append(new)
    return body, [named(tensor) for tensor in returned]


def stateful_ops(nodes: Iterable[NodeDef], library: Library) -> list[str]:
    """The ops of a function that read or write state, or run functions that do.

    TensorFlow opens the function in the place of its call. What had to come after the call, and
    takes none of its results, then comes after these only if the function names them.
    """
    return [node.name for node in nodes if signature_of(node, library).is_stateful]


def _output_name(outputs: Mapping[str, list[str]], op: str, index: int) -> str:
    """ "argument:i", as a function body names output `index` of an op."""
    names = outputs[op]
    if index >= len(names):
        raise ValueError(f"naming output {index} of {op!r}: it has {len(names)} outputs")
    return names[index]
