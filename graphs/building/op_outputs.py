"""How many outputs an op has, and where each of them lies among all."""

import re
from collections.abc import Mapping
from typing import Any

from graphs.errors import ModelError
from graphs.op_types import REACHES_OUT

_NOT_REGISTERED = re.compile(r"Op type not registered '(\w+)'")
_REFERENCE = 100  # more than its own has the DataType number of a reference


def op_definition(op_type: str, node_name: str = "") -> Any:
    """TensorFlow's OpDef.

    Raises:
      ModelError: this TensorFlow doesn't know the op.
    """
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op_type)
    if definition is None:
        raise ModelError(f"reading op {node_name!r}: {_no_op(op_type)}, or save the model without")
    return definition


def of_unknown_op(message: str) -> str:
    """What TensorFlow says where it runs a graph, and of an op that it lacks what is said here."""
    found = _NOT_REGISTERED.search(message)
    return _no_op(found[1]) if found else message


def _no_op(op_type: str) -> str:
    return (
        f"this TensorFlow has no op {op_type!r}; name the library that defines it by "
        "--op_library=PATH (in Python, load it by tf.load_op_library)"
    )


def num_outputs(node: Any, library: Mapping[str, Any]) -> int:
    """How many tensors a NodeDef makes, calls by name included."""
    return sum(_sizes(node, library).values())


def output_offsets(node: Any, library: Mapping[str, Any]) -> dict[str, int]:
    """{output argument: index of its first tensor} of a NodeDef, calls by name included."""
    offsets = {}
    position = 0
    for name, size in _sizes(node, library).items():
        offsets[name] = position
        position += size
    return offsets


def output_names(node: Any, library: Mapping[str, Any]) -> list[str]:
    """ "argument:i" of each output, as the body of a function names it."""
    return [f"{name}:{i}" for name, size in _sizes(node, library).items() for i in range(size)]


def output_dtype(node: Any, library: Mapping[str, Any], index: int) -> int:
    """The DataType number of an output, references as what they refer to."""
    return argument_types(node, library, of_outputs=True)[index] % _REFERENCE


def argument_types(node: Any, library: Mapping[str, Any], of_outputs: bool = False) -> list[int]:
    """The DataType number of each data input, or output, of a NodeDef."""
    signature = _signature(node, library)
    types: list[int] = []
    for argument in signature.output_arg if of_outputs else signature.input_arg:
        if argument.type_list_attr:
            types.extend(node.attr[argument.type_list_attr].list.type)
            continue
        one = node.attr[argument.type_attr].type if argument.type_attr else argument.type
        if argument.is_ref:
            one += _REFERENCE * (one < _REFERENCE)
        types.extend([one] * (node.attr[argument.number_attr].i if argument.number_attr else 1))
    return types


def _signature(node: Any, library: Mapping[str, Any]) -> Any:
    if node.op in library:
        return library[node.op].signature
    return op_definition(node.op, node.name)


def _sizes(node: Any, library: Mapping[str, Any]) -> dict[str, int]:
    """{output argument: how many tensors it is}, in the op's order."""
    sizes = {}
    for argument in _signature(node, library).output_arg:
        if argument.number_attr:
            sizes[argument.name] = node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            sizes[argument.name] = len(node.attr[argument.type_list_attr].list.type)
        else:
            sizes[argument.name] = 1
    return sizes


def never_evaluated(graph_def: Any) -> Any:
    """The graph with ops of Python's in place of those that reach out; itself where there are none.

    TensorFlow evaluates stateless ops of constants while it infers shapes, which is when a model is
    only looked at. So it would open any file that a stranger's ReadFile names.
    """
    bodies = [graph_def, *graph_def.library.function]
    if not any(node.op in REACHES_OUT for body in bodies for node in _nodes(body)):
        return graph_def
    copy = type(graph_def)()
    copy.CopyFrom(graph_def)
    for body in [copy, *copy.library.function]:
        new_names: dict[str, str] = {}
        for node in _nodes(body):
            if node.op in REACHES_OUT:
                named = enumerate(output_names(node, {}))
                new_names |= {f"{node.name}:{old}": f"{node.name}:output:{i}" for i, old in named}
                types = [argument_types(node, {}, of_outputs) for of_outputs in (False, True)]
                node.op = "PyFunc"
                node.attr.clear()
                node.attr["token"].s = b"never run"
                for name, numbers in zip(("Tin", "Tout"), types, strict=True):
                    node.attr[name].list.type.extend(numbers)
        if body is not copy:
            for node in _nodes(body):
                node.input[:] = [new_names.get(name, name) for name in node.input]
            for output, name in body.ret.items():
                body.ret[output] = new_names.get(name, name)
    return copy


def restore_evaluated(made: Any, given: Any) -> None:
    """Gives back, to a graph that was made of `never_evaluated(given)`, the ops of `given`."""
    nodes = {each.name: each for each in given.node if each.op in REACHES_OUT}
    functions = {each.signature.name: each for each in given.library.function}
    for node in made.node:
        if node.name in nodes:
            node.op = nodes[node.name].op
            node.attr.clear()
            node.MergeFrom(type(node)(attr=nodes[node.name].attr))
    for function in made.library.function:
        if function.signature.name in functions:
            function.CopyFrom(functions[function.signature.name])


def _nodes(body: Any) -> Any:
    """The nodes of a GraphDef or a FunctionDef."""
    return body.node_def if hasattr(body, "node_def") else body.node
