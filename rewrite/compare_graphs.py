"""Compares graphs apart from what a placement may change: devices and copies of functions.

Both graphs are changed: devices are cleared and copies of functions renamed in place, since a
graph may have gigabytes of constants.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from graphs.function_library import rename_references
from graphs.protos import GraphDef, NodeDef
from rewrite.annotate_devices import bodies
from rewrite.call_graph import copy_of
from rewrite.pass_base import RewriteError, op_path

_DERIVED = frozenset({"_output_shapes"})
"""Attributes that TensorFlow works out itself when it imports a graph."""


def same_graphs(given: Any, placed: Any) -> None:
    """Raises RewriteError unless two GraphDefs are equal but for devices and copied functions.

    Nodes have to stand in the same order; functions needn't. A copy has to be equal to the
    function that it says it is a copy of, and whatever calls it is taken to call that.
    """
    known = {f.signature.name for f in given.library.function}
    functions = list(placed.library.function)
    copies = {f.signature.name: copy_of(f) for f in functions if f.signature.name not in known}
    there = Counter(f.signature.name for f in functions)
    wanted = Counter(f.signature.name for f in given.library.function)
    wrong = {name for name in known | there.keys() if there[name] != (wanted[name] or 1)}
    wrong |= {name for name, original in copies.items() if original not in known}
    if wrong:
        raise RewriteError(f"comparing function libraries: {min(wrong)!r} is on one side only")
    _forget_placement(given, {})
    _forget_placement(placed, copies)
    _same_nodes("", given.node, placed.node)
    originals = {f.signature.name: f for f in given.library.function}
    for function in functions:
        name = function.signature.name
        _same_functions(name, originals[copies.get(name, name)], function)
    _same_gradients(given.library, placed.library, copies)
    without = ("function", "gradient")
    same_message("function libraries", given.library, placed.library, without)
    same_message("graphs", given, placed, without=("node", "library"))


def same_message(what: str, given: Any, placed: Any, without: Collection[str] = ()) -> None:
    """Raises RewriteError for the first field in which two messages differ."""
    fields = [{f.name: v for f, v in m.ListFields()} for m in (given, placed)]
    for name in sorted(fields[0].keys() | fields[1].keys()):
        if name in without:
            continue
        if name not in fields[0] or name not in fields[1] or not _equal(given, placed, name):
            raise RewriteError(f"comparing {what}: their {name} differs")


def same_imported(given: Any, placed: Any) -> None:
    """Raises RewriteError unless all of a GraphDef is found in what TensorFlow imported of it.

    An import may sort nodes and control inputs and fill in attributes; the rest has to be there.
    """
    there = {node.name: node for node in placed.node}
    calls = {f.signature.name: copy_of(f) for f in placed.library.function}
    moved: Any = type(given.node[0])() if given.node else None
    for node in given.node:
        found = there.get(node.name)
        if found is None:
            raise RewriteError(f"comparing with the graph as it came: {node.name!r} is missing")
        # Nearly all nodes differ in their device and in derived attributes alone.
        moved.CopyFrom(node)
        moved.device = found.device
        for key in _DERIVED:
            if key in found.attr:
                moved.attr[key].CopyFrom(found.attr[key])
        if moved == found:
            continue
        if (
            calls.get(found.op, found.op) != calls.get(node.op, node.op)
            or (found.input != node.input and _edges(found) != _edges(node))
            or any(
                not _same_attribute(node.attr[key], found.attr[key], calls)
                for key in node.attr
                if key not in _DERIVED and key in found.attr
            )
        ):
            raise RewriteError(
                f"comparing with the graph as it came: {node.name!r} is another op, or has other "
                "inputs or attributes"
            )
    lost = {f.signature.name for f in given.library.function} - calls.keys()
    if lost:
        raise RewriteError(f"comparing with the graph as it came: function {min(lost)!r} is gone")


def _forget_placement(graph_def: GraphDef, copies: Mapping[str, str]) -> None:
    for _, nodes in bodies(graph_def):
        for node in nodes:
            if node.device:
                node.device = ""
            if copies:
                rename_references(node, copies)


def _same_nodes(function: str, given: Any, placed: Any) -> None:
    if len(given) != len(placed):
        raise RewriteError(
            f"comparing {function or 'the main graph'!r}: {len(given)} ops became {len(placed)}"
        )
    for before, after in zip(given, placed, strict=True):
        if not same_content(before, after):
            raise RewriteError(
                f"comparing {op_path(function, before.name)!r}: more than its device changed"
            )


def _same_functions(name: str, given: Any, placed: Any) -> None:
    _same_nodes(name, given.node_def, placed.node_def)
    what = f"function {name!r}"
    same_message(what, given, placed, without=("signature", "node_def"))
    is_copy = name != given.signature.name
    # A copy's name and the mark in its description are its own.
    own = ("name", "description") if is_copy else ()
    same_message(f"the signature of {what}", given.signature, placed.signature, without=own)


def _same_gradients(given: Any, placed: Any, copies: Mapping[str, str]) -> None:
    """Each function has the gradient that it had, and each copy that of its original."""
    before = {(g.function_name, g.gradient_func) for g in given.gradient}
    after = {
        (copies.get(g.function_name, g.function_name), g.gradient_func) for g in placed.gradient
    }
    if before != after or len(placed.gradient) < len(given.gradient):
        raise RewriteError("comparing function libraries: their gradient functions differ")


def _equal(given: Any, placed: Any, name: str) -> bool:
    if getattr(given, name) == getattr(placed, name):
        return True
    return same_content(*(_only(message, name) for message in (given, placed)))


def _only(message: Any, name: str) -> Any:
    """A copy of a message with one field."""
    result = type(message)()
    result.MergeFrom(message)
    for field, _ in message.ListFields():
        if field.name != name:
            result.ClearField(field.name)
    return result


def same_content(one: Any, other: Any) -> bool:
    """Whether two messages are equal; a NaN in both of them is."""
    if one == other:
        return True
    content = [message.SerializeToString(deterministic=True) for message in (one, other)]
    return bool(content[0] == content[1])


def _edges(node: NodeDef) -> tuple[list[str], frozenset[str]]:
    inputs = [name.removesuffix(":0") for name in node.input if not name.startswith("^")]
    return inputs, frozenset(name for name in node.input if name.startswith("^"))


def _same_attribute(given: Any, placed: Any, calls: Mapping[str, str]) -> bool:
    if same_content(given, placed):
        return True
    if given.WhichOneof("value") != "func" or placed.WhichOneof("value") != "func":
        return False
    names = [calls.get(value.func.name, value.func.name) for value in (given, placed)]
    return names[0] == names[1] and dict(given.func.attr) == dict(placed.func.attr)
