"""The functions of a GraphDef: which ones a node calls or refers to, and which calls stay whole."""

from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from typing import Any

from graphs.errors import ModelError
from graphs.names import source_of
from graphs.op_types import CALLS, CONDITIONALS, SAME
from graphs.protos import FunctionDef, GraphDef, Library, NodeDef, Tensor

MAX_CALL_DEPTH = 200
MAX_OPS = 5_000_000
"""Of a graph whose calls are opened: forty functions that call each other twice are 2**40."""

CONVERTS_WEIGHTS = "_tfplace_weights"
"""The attribute of a call that puts weights into pieces, or makes them whole, where they aren't."""
CUT = "_tfplace_cut"
"""The attribute of what holds a piece of a variable: the axis, and in how many blocks it is cut."""
KEPT_WHOLE = {
    "_XlaMustCompile": "compiled by XLA",
    "api_implements": "a function that TensorFlow may swap for another implementation",
    "_noinline": "a function that says _noinline",
}


def library_of(graph_def: GraphDef) -> dict[str, FunctionDef]:
    """{name: FunctionDef} of all functions that a GraphDef defines."""
    return {function.signature.name: function for function in graph_def.library.function}


def add_functions(graph_def: GraphDef, source: GraphDef) -> None:
    """Adds the functions and gradients of `source` whose names are new."""
    known = library_of(graph_def)
    graph_def.library.function.extend(
        function for function in source.library.function if function.signature.name not in known
    )
    gradients = {gradient.function_name for gradient in graph_def.library.gradient}
    graph_def.library.gradient.extend(
        each for each in source.library.gradient if each.function_name not in gradients
    )


def bodies(graph_def: GraphDef) -> Iterator[tuple[str, MutableSequence[NodeDef]]]:
    """(function name, its NodeDefs) of the main graph, named "", and of each function."""
    yield "", graph_def.node
    for function in graph_def.library.function:
        yield function.signature.name, function.node_def


def whole_of_piece(shared_name: str) -> str:
    """The op of the variable that one with CUT is a piece of."""
    return shared_name.split("/", 2)[2].rpartition("/shard_")[0]


def cut_apart(whole: Tensor, axis: int, outer: int, count: int, xp: Any) -> list[Tensor]:
    """The pieces of a variable's value, `count` of them, as the numbers of CUT say.

    Args:
      whole: an array, with numpy as `xp`; a tensor of known shape, with tf.experimental.numpy.
    """
    before, size, after = whole.shape[:axis], whole.shape[axis], whole.shape[axis + 1 :]
    apart = xp.reshape(whole, [*before, outer, size // outer, *after])
    pieces = xp.split(apart, count, axis + 1)
    return [xp.reshape(piece, [*before, size // count, *after]) for piece in pieces]


def called_function(node: NodeDef, library: Library) -> str | None:
    """The function of the library that a node calls; None where it calls none."""
    name = node.attr["f"].func.name if node.op in CALLS else node.op
    return name if name in library else None


def rename_references(node: NodeDef, new_names: Mapping[str, str]) -> bool:
    """Renames in place the functions that a node names; returns whether any name changed."""
    changed = False
    if new_names.get(node.op, node.op) != node.op:
        node.op = new_names[node.op]
        changed = True
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        funcs = [value.func] if kind == "func" else value.list.func if kind == "list" else ()
        for func in funcs:
            if new_names.get(func.name, func.name) != func.name:
                func.name = new_names[func.name]
                changed = True
    return changed


def kept_whole(node: NodeDef, function: FunctionDef) -> str:
    """Why a call stays one unit; empty for calls that are opened.

    TensorFlow never opens calls with these attributes: XLA compiles the whole function; a
    function with `api_implements` may be swapped for another one (cuDNN's LSTM) at run time.
    """
    for key, reason in KEPT_WHOLE.items():  # reading a missing key of a proto map would add it
        for each in (node, function):
            if key in each.attr and (each.attr[key].b or each.attr[key].s):
                return reason
    return ""


def named_functions(node: NodeDef) -> Iterator[str]:
    """The functions that a node's attributes name, also those that are not defined."""
    for _, value in sorted(node.attr.items()):  # a proto map has another order in each process
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            yield from (function.name for function in value.list.func)


def referred_functions(nodes: Iterable[NodeDef], library: Library) -> Iterator[str]:
    """The functions of the library that nodes name: as their op or in an attribute."""
    for node in nodes if library else ():
        if node.op in library:
            yield node.op
        yield from (name for name in named_functions(node) if name in library)


def require_bounded(nodes: Iterable[NodeDef], library: Library) -> None:
    """Looks at all calls without opening one; a function that calls itself is no matter here.

    Raises:
      ModelError: opened, they would be more than MAX_OPS ops, or nest deeper than MAX_CALL_DEPTH.
    """
    size_of, depth_of = dict[str, int](), dict[str, int]()
    waiting: list[tuple[str, list[str], Iterator[str]]] = []

    def begin(name: str, inside: Iterable[NodeDef]) -> None:
        size_of[name], depth_of[name] = len(list(inside)), 1
        called = list(referred_functions(inside, library))
        waiting.append((name, called, iter(called)))

    begin("", nodes)
    while waiting:
        name, called, left = waiting[-1]
        new = next((each for each in left if each not in size_of), None)
        if new is not None:
            begin(new, library[new].node_def)
            continue
        waiting.pop()
        size_of[name] += sum(size_of[each] for each in called)
        depth_of[name] += max((depth_of[each] for each in called), default=0)
        if size_of[name] > MAX_OPS or depth_of[name] > MAX_CALL_DEPTH:
            raise ModelError(
                f"opening the function calls of {name or 'the graph'!r}: its calls hold "
                f"{size_of[name]:,} ops and nest {depth_of[name]:,} deep, as if one calls itself; "
                f"wanted at most {MAX_OPS:,} ops and {MAX_CALL_DEPTH} calls in each other; save a "
                "smaller model"
            )


def callees(node: NodeDef, library: Library) -> list[tuple[str, int]]:
    """(function, the input at which its arguments begin) of each function that a node runs.

    The first input of a conditional is its condition and not an argument.
    """
    first = 1 if node.op in CONDITIONALS else 0
    return [(name, first) for name in referred_functions([node], library)]


def reached_functions(nodes: Iterable[NodeDef], library: Library) -> list[str]:
    """The functions that nodes refer to and that these refer to in turn, each once."""
    pending = list(referred_functions(nodes, library))
    reached: dict[str, None] = {}
    while pending:
        name = pending.pop()
        if name not in reached:
            reached[name] = None
            pending.extend(referred_functions(library[name].node_def, library))
    return list(reached)


def handed_on(function: FunctionDef) -> set[int]:
    """The arguments that a loop's body hands to the next iteration as they are."""
    nodes = {node.name: node for node in function.node_def}
    arguments = [argument.name for argument in function.signature.input_arg]
    results = [function.ret[result.name] for result in function.signature.output_arg]
    sources = [source_of(result, nodes, SAME) for result in results]
    pairs = enumerate(zip(arguments, sources, strict=False))
    return {number for number, (argument, source) in pairs if argument == source}
