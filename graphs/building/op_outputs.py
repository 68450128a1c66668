"""How many outputs an op has, and where each of them lies among all."""

import re
from collections.abc import Iterable

from graphs.errors import ModelError
from graphs.protos import AttrValue, Library, NodeDef, OpDef

_NOT_REGISTERED = re.compile(r"Op type not registered '(\w+)'")
MOST_OUTPUTS = 100_000
_REFERENCE = 100  # more than its own has the DataType number of a reference


def known_definition(op_type: str) -> OpDef | None:
    """TensorFlow's OpDef; None where this TensorFlow doesn't know the op."""
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op_type)


def op_definition(op_type: str, node_name: str = "") -> OpDef:
    """TensorFlow's OpDef; ModelError: this TensorFlow doesn't know the op."""
    definition = known_definition(op_type)
    if definition is None:
        raise ModelError(f"reading op {node_name!r}: {_no_op(op_type)}, or save the model without")
    return definition


def attr_of(node: NodeDef, name: str) -> AttrValue:
    """An attribute's AttrValue; the op's default where the NodeDef leaves it out."""
    if name in node.attr:  # asking for one that isn't there would add it
        return node.attr[name]
    for attr in op_definition(node.op, node.name).attr:
        if attr.name == name:
            return attr.default_value
    raise ValueError(f"reading attribute {name!r} of {node.name!r}: {node.op} has none")


def of_unknown_op(message: str) -> str:
    """What TensorFlow says where it runs a graph, and of an op that it lacks what is said here."""
    found = _NOT_REGISTERED.search(message)
    return _no_op(found[1]) if found else message


def _no_op(op_type: str) -> str:
    return (
        f"this TensorFlow has no op {op_type!r}; name the library that defines it by "
        "--op_library=PATH (in Python, load it by tf.load_op_library)"
    )


def require_few_outputs(nodes: Iterable[NodeDef], library: Library) -> None:
    """Raises ModelError where an op has so many outputs that their list would fill the memory."""
    for node in nodes:
        if any(value.i > MOST_OUTPUTS for value in node.attr.values()):
            count = num_outputs(node, library)
            if count > MOST_OUTPUTS:
                raise ModelError(
                    f"reading op {node.name!r}: {node.op} makes {count:,} outputs; wanted at most "
                    f"{MOST_OUTPUTS:,}; save a smaller model"
                )


def num_outputs(node: NodeDef, library: Library) -> int:
    """How many tensors a NodeDef makes, calls by name included."""
    return sum(_sizes(node, library).values())


def output_offsets(node: NodeDef, library: Library) -> dict[str, int]:
    """{output argument: index of its first tensor} of a NodeDef, calls by name included."""
    offsets = {}
    position = 0
    for name, size in _sizes(node, library).items():
        offsets[name] = position
        position += size
    return offsets


def output_names(node: NodeDef, library: Library) -> list[str]:
    """ "argument:i" of each output, as the body of a function names it."""
    return [f"{name}:{i}" for name, size in _sizes(node, library).items() for i in range(size)]


def output_dtype(node: NodeDef, library: Library, index: int) -> int:
    """The DataType number of an output, references as what they refer to."""
    return argument_types(node, library, of_outputs=True)[index] % _REFERENCE


def argument_types(node: NodeDef, library: Library, of_outputs: bool = False) -> list[int]:
    """The DataType number of each data input, or output, of a NodeDef."""
    signature = signature_of(node, library)
    types: list[int] = []
    for argument in signature.output_arg if of_outputs else signature.input_arg:
        if argument.type_list_attr:
            types.extend(_attr(node, signature, argument.type_list_attr).list.type)
            continue
        given = argument.type_attr
        one = _attr(node, signature, given).type if given else argument.type
        if argument.is_ref:
            one += _REFERENCE * (one < _REFERENCE)
        count = argument.number_attr
        types.extend([one] * (_attr(node, signature, count).i if count else 1))
    return types


def _attr(node: NodeDef, signature: OpDef, name: str) -> AttrValue:
    """An attribute, or its default where a NodeDef leaves it out; the node stays as it is."""
    if name in node.attr:
        return node.attr[name]
    defaults = (each.default_value for each in signature.attr if each.name == name)
    return next(defaults, type(node)().attr[name])


def signature_of(node: NodeDef, library: Library) -> OpDef:
    """What an op, or a function that is called by its name, takes and makes."""
    return library[node.op].signature if node.op in library else op_definition(node.op, node.name)


def _sizes(node: NodeDef, library: Library) -> dict[str, int]:
    """{output argument: how many tensors it is}, in the op's order."""
    sizes = {}
    signature = signature_of(node, library)
    for argument in signature.output_arg:
        if argument.number_attr:
            sizes[argument.name] = _attr(node, signature, argument.number_attr).i
        elif argument.type_list_attr:
            sizes[argument.name] = len(_attr(node, signature, argument.type_list_attr).list.type)
        else:
            sizes[argument.name] = 1
    return sizes
