"""Ops in float64 instead of float32 and narrower: which have a kernel for it, and what it makes."""

import copy
import functools
import re
from collections.abc import Mapping

from graphs.building.op_outputs import op_definition
from graphs.pricing.kernels import kernel_table
from graphs.protos import Library, Message, NodeDef

# What these draw depends on the type that they are asked for.
_RANDOM = re.compile(
    "Random|Multinomial|TruncatedNormal|StatefulUniform|StatefulStandardNormal|CandidateSampler"
)


@functools.cache
def _wide_of_narrow() -> Mapping[int, int]:
    """{narrow type: float64 or, of a complex one, complex128}, references included."""
    from tensorflow.core.framework import types_pb2 as types

    wide = dict.fromkeys((types.DT_FLOAT, types.DT_HALF, types.DT_BFLOAT16), types.DT_DOUBLE)
    wide[types.DT_COMPLEX64] = types.DT_COMPLEX128
    return wide | {number + 100: other + 100 for number, other in wide.items()}


def wide_type(number: int) -> int:
    """A type's number; float64's or complex128's for narrower ones."""
    return _wide_of_narrow().get(number, number)


def widen_types(message: Message) -> None:
    """Makes all narrow float types of an op's attributes float64, in place."""
    for value in message.attr.values():
        if value.WhichOneof("value") == "type":
            value.type = wide_type(value.type)
        elif value.WhichOneof("value") == "list" and value.list.type:
            value.list.type[:] = [wide_type(number) for number in value.list.type]


def is_random(op_type: str) -> bool:
    """Whether an op draws numbers."""
    return _RANDOM.search(op_type) is not None


def widened(node: NodeDef, library: Library | None = None) -> NodeDef | None:
    """A copy of a NodeDef that computes in float64; None where no CPU kernel does.

    Args:
      node: any; its name and inputs are kept. A constant keeps its value's own type.
      library: functions that have float64 arguments, too, and may be called by name.
    """
    wide = copy.deepcopy(node)
    fill_in_types(wide, library or {})
    widen_types(wide)
    if node.op in (library or {}) or wide == node:
        return wide
    if is_random(node.op) or not _is_allowed(wide):
        return None
    return wide if kernel_table().matching(wide, "CPU") is not None else None


def _is_allowed(node: NodeDef) -> bool:
    """Whether an op may have such types at all; kernels may ask less than the op itself."""
    for attribute in op_definition(node.op, node.name).attr:
        allowed = attribute.allowed_values.list.type
        if not allowed or attribute.name not in node.attr:
            continue
        value = node.attr[attribute.name]
        if not {value.type, *value.list.type} <= {0, *allowed}:
            return False
    return True


def fill_in_types(node: NodeDef, library: Library) -> None:
    """Writes down types that the op has by default: they may have to be widened."""
    if node.op in library:
        return
    for attribute in op_definition(node.op, node.name).attr:
        is_default = attribute.HasField("default_value") and attribute.name not in node.attr
        if attribute.type == "type" and is_default:
            node.attr[attribute.name].CopyFrom(attribute.default_value)
