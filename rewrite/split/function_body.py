"""A graph of ops as the body of a function, where inputs have other names than in a main graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphs.building.op_outputs import op_definition, output_names
from graphs.names import parse_input


def as_body(
    graph_def: Any, argument_of: Mapping[str, str], library: Mapping[str, Any]
) -> list[Any]:
    """NodeDefs of a function body for the ops of a main graph.

    Args:
      graph_def: the ops; what they read of each other is named "op:i".
      argument_of: {op that is left out: the function's argument that stands for its output 0}.
      library: {name: FunctionDef} of functions that ops call by name.

    Raises:
      ValueError: an op reads an output that its producer doesn't have.
    """
    outputs = {
        node.name: output_names(node, library)
        for node in graph_def.node
        if node.name not in argument_of
    }
    body = []
    for node in graph_def.node:
        if node.name in argument_of:
            continue
        new = type(node)()
        new.CopyFrom(node)
        del new.input[:]
        controls = []
        for name in node.input:
            source = parse_input(name)
            if source.output < 0:  # a control input
                if source.op not in argument_of:  # an argument is there before the body runs
                    controls.append(name)
            elif source.op in argument_of:
                new.input.append(argument_of[source.op])
            else:
                new.input.append(f"{source.op}:{output_name(outputs, source.op, source.output)}")
        new.input.extend(controls)
        body.append(new)
    return body


def stateful_ops(nodes: Iterable[Any], library: Mapping[str, Any]) -> list[str]:
    """The ops of a function that read or write state, or run functions that do.

    TensorFlow opens the function in the place of its call. What had to come after the call, and
    takes none of its results, then comes after these only if the function names them.
    """
    return [
        node.name
        for node in nodes
        if (
            library[node.op].signature if node.op in library else op_definition(node.op, node.name)
        ).is_stateful
    ]


def output_name(outputs: Mapping[str, list[str]], op: str, index: int) -> str:
    """ "argument:i", as a function body names output `index` of an op."""
    names = outputs[op]
    if index >= len(names):
        raise ValueError(f"naming output {index} of {op!r}: it has {len(names)} outputs")
    return names[index]
