"""Compares graphs apart from what a placement may change: devices, copies of functions, order."""

import copy
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from graphs.function_library import library_of, rename_references
from graphs.protos import AttrValue, GraphDef, Message, NodeDef
from rewrite.call_graph import copy_of
from rewrite.order.order_edges import forget
from rewrite.pass_base import RewriteError, op_path

_DERIVED = frozenset({"_output_shapes"})
"""Attributes that TensorFlow works out itself when it imports a graph."""


def same_graphs(given: GraphDef, placed: GraphDef) -> None:
    """Raises RewriteError unless two GraphDefs are equal but for devices, copied functions, order.

    Nodes have to stand in the same order; functions needn't. A copy has to be equal to the
    function that it says it is a copy of, and whatever calls it is taken to call that.
    """
    known, functions = library_of(given), placed.library.function
    copies = {f.signature.name: copy_of(f) for f in functions if f.signature.name not in known}
    there = Counter(f.signature.name for f in functions)
    wanted = Counter(f.signature.name for f in given.library.function)
    wrong = {name for name in known.keys() | there.keys() if there[name] != (wanted[name] or 1)}
    wrong |= {name for name, original in copies.items() if original not in known}
    if wrong:
        raise RewriteError(f"comparing function libraries: {min(wrong)!r} is on one side only")
    _same_nodes("", given.node, placed.node, copies)
    for function in functions:
        name = function.signature.name
        original, what = known[copies.get(name, name)], f"function {name!r}"
        _same_nodes(name, original.node_def, function.node_def, copies)
        same_message(what, original, function, without=("signature", "node_def"))
        # A copy's name and the mark in its description are its own.
        own = ("name", "description") if name in copies else ()
        same_message(f"the signature of {what}", original.signature, function.signature, own)
    # Each function has the gradient that it had, and each copy that of its original.
    originals, now = given.library.gradient, placed.library.gradient
    before = {(g.function_name, g.gradient_func) for g in originals}
    after = {(copies.get(g.function_name, g.function_name), g.gradient_func) for g in now}
    if before != after or len(now) < len(originals):
        raise RewriteError("comparing function libraries: their gradient functions differ")
    same_message("function libraries", given.library, placed.library, ("function", "gradient"))
    same_message("graphs", given, placed, without=("node", "library"))


def same_message(what: str, given: Message, placed: Message, without: Collection[str] = ()) -> None:
    """Raises RewriteError for the first field in which two messages differ."""
    fields = [{f.name: v for f, v in m.ListFields()} for m in (given, placed)]
    for name in sorted(fields[0].keys() | fields[1].keys()):
        if name in without:
            continue
        if name not in fields[0] or name not in fields[1] or not _equal(given, placed, name):
            raise RewriteError(f"comparing {what}: their {name} differs")


def same_imported(given: GraphDef, placed: GraphDef) -> None:
    """Raises RewriteError unless all of a GraphDef is found in what TensorFlow imported of it.

    An import may sort nodes and control inputs and fill in attributes; the rest has to be there.
    """
    there = {node.name: node for node in placed.node}
    calls = {f.signature.name: copy_of(f) for f in placed.library.function}
    for node in given.node:
        found = there.get(node.name)
        if found is None:
            raise RewriteError(f"comparing with the graph as it came: {node.name!r} is missing")
        if (
            calls.get(found.op, found.op) != calls.get(node.op, node.op)
            or (found.input != node.input and _edges(found) != _edges(node))
            or any(
                key in found.attr
                and found.attr[key] != value
                and key not in _DERIVED
                and not _same_attribute(value, found.attr[key], calls)
                for key, value in node.attr.items()
            )
        ):
            raise RewriteError(
                f"comparing with the graph as it came: {node.name!r} is another op, or has other "
                "inputs or attributes"
            )
    lost = {f.signature.name for f in given.library.function} - calls.keys()
    if lost:
        raise RewriteError(f"comparing with the graph as it came: function {min(lost)!r} is gone")


def _same_nodes(
    function: str, given: Sequence[NodeDef], placed: Sequence[NodeDef], copies: Mapping[str, str]
) -> None:
    if len(given) != len(placed):
        raise RewriteError(
            f"comparing {function or 'the main graph'!r}: {len(given)} ops became {len(placed)}"
        )
    for before, after in zip(given, placed, strict=True):
        # Of nearly all only the device has changed. A copy could have gigabytes of constants.
        device, after.device = after.device, before.device
        is_same = before == after
        after.device = device
        if is_same:
            continue
        own, its = (_without_placement(node, copies) for node in (before, after))
        if not same_content(own, its):
            raise RewriteError(
                f"comparing {op_path(function, before.name)!r}: more than its device changed"
            )


def _without_placement(node: NodeDef, copies: Mapping[str, str]) -> NodeDef:
    result = copy.deepcopy(node)
    result.device = ""
    forget(result)
    rename_references(result, copies)
    return result


def _equal(given: Message, placed: Message, name: str) -> bool:
    if getattr(given, name) == getattr(placed, name):
        return True
    return same_content(*(_only(message, name) for message in (given, placed)))


def _only(message: Message, name: str) -> Message:
    """A copy of a message with one field."""
    result = type(message)()
    result.MergeFrom(message)
    for field, _ in message.ListFields():
        if field.name != name:
            result.ClearField(field.name)
    return result


def same_content(one: Message, other: Message) -> bool:
    """Whether two messages are equal; a NaN in both of them is."""
    if one == other:
        return True
    content = [message.SerializeToString(deterministic=True) for message in (one, other)]
    return bool(content[0] == content[1])


def _edges(node: NodeDef) -> tuple[list[str], frozenset[str]]:
    inputs = [name.removesuffix(":0") for name in node.input if not name.startswith("^")]
    return inputs, frozenset(name for name in node.input if name.startswith("^"))


def _same_attribute(given: AttrValue, placed: AttrValue, calls: Mapping[str, str]) -> bool:
    if same_content(given, placed):
        return True
    if given.WhichOneof("value") != "func" or placed.WhichOneof("value") != "func":
        return False
    names = [calls.get(value.func.name, value.func.name) for value in (given, placed)]
    return names[0] == names[1] and dict(given.func.attr) == dict(placed.func.attr)
