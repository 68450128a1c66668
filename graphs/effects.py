"""What a graph does outside of the process that runs it, and the graph without that.

Runs of tfplace's own must leave nothing in a user's folders and logs, and they run copies of the
graph. So what writes there is cut out of the copies; what is emitted keeps it. A cut op keeps its
name, its device and what waits for it. What it reads is computed still, and brought to where it
is: an Assert that holds takes the tensors.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphs import op_types
from graphs.building.op_outputs import argument_types, output_names
from graphs.function_library import reached_functions
from graphs.graph_view import GraphView
from graphs.names import data_inputs, op_of
from graphs.source_model import SourceModel

_KINDS = frozenset().union(
    op_types.WRITES,
    op_types.WRITES_AND_HANDS_ON,
    op_types.ACTS_BY_ITS_OUTPUT,
    op_types.PYTHON,
)
_TRUE = "tfplace_true"
_DEBUG, _URLS = re.compile("Debug(Identity|N)"), "debug_urls"


def without_effects(graph_def: Any) -> Any:
    """The graph, in which nothing acts outside of the process; itself where nothing does.

    Args:
      graph_def: any; it is not changed.
    """
    if not any(_acts(nodes) for _, nodes in _bodies(graph_def)):
        return graph_def
    cut = type(graph_def)()
    cut.CopyFrom(graph_def)
    for function, nodes in _bodies(cut):
        _cut_body(nodes, function)
    return cut


def left_out(source: SourceModel) -> dict[str, int]:
    """{op type: how many ops} of what a run of a model does outside of the process."""
    graph_def = source.graph_def
    if not any(_acts(nodes) for _, nodes in _bodies(graph_def)):
        return {}
    view = GraphView(graph_def)
    main = [view.nodes[name] for name in view.ancestors(source.fetches)]
    bodies = [main, *(view.library[f].node_def for f in reached_functions(main, view.library))]
    found = collections.Counter(node.op for nodes in bodies for node in _acts(nodes))
    return dict(sorted(found.items()))


def left_out_sentence(ops: Mapping[str, int]) -> str:
    """What `left_out` says, in words; empty where it says nothing."""
    if not ops:
        return ""
    types = ", ".join(f"{count} {op_type}" for op_type, count in ops.items())
    they_act = "it acts" if sum(ops.values()) == 1 else "they act"
    return f"left out of tfplace's own runs: {types} ({they_act} outside of the program)"


def acts_when_loaded(meta_graph: Any) -> bool:
    """Whether a model's signatures or its loading may act outside of the process.

    What only the saver reaches does not count: nothing of ours saves.
    """
    graph_def = meta_graph.graph_def
    if not any(_acts(nodes) for _, nodes in _bodies(graph_def)):
        return False
    view = GraphView(graph_def)
    library, save = view.library, meta_graph.saver_def.save_tensor_name
    of_saver = set(view.ancestors([save])) if op_of(save) in view.nodes else set()
    main = [node for node in graph_def.node if node.name not in of_saver]
    saves = set(reached_functions([view.nodes[name] for name in of_saver], library))
    run = saves.intersection(reached_functions(main, library))
    bodies = [f.node_def for name, f in library.items() if name in run or name not in saves]
    return any(_acts(nodes) for nodes in (main, *bodies))


def _bodies(graph_def: Any) -> Iterator[tuple[Any, Any]]:
    """(None, the main graph's NodeDefs), and (function, those of its body)."""
    yield None, graph_def.node
    for function in graph_def.library.function:
        yield function, function.node_def


def _acts(nodes: Iterable[Any]) -> list[Any]:
    """Those of a body's NodeDefs that act outside of the process."""
    found = [node for node in nodes if acts_outside(node)]
    if any(node.op.startswith("Cache") for node in found):
        of_name = {node.name: node for node in nodes}
        found = [node for node in found if not _is_in_memory(node, of_name)]
    return found


def acts_outside(node: Any) -> bool:
    """Whether an op may act outside of the process, by itself."""
    return node.op in _KINDS or _has_urls(node)


def _has_urls(node: Any) -> bool:
    is_debug = node.op.startswith("Debug") and _DEBUG.match(node.op)
    return bool(is_debug and _URLS in node.attr and node.attr[_URLS].list.s)


def _is_in_memory(node: Any, of_name: Mapping[str, Any]) -> bool:
    """Whether it caches the elements of a data set, and has no file for it."""
    if not node.op.startswith("Cache"):
        return False
    file = of_name.get(op_of(node.input[1]))
    return file is not None and file.op == "Const" and file.attr["value"].tensor.string_val == [b""]


def _cut_body(nodes: Any, function: Any) -> None:
    """Cuts a body's ops, in place."""
    names = {node.name for node in nodes}
    end = "" if function is None else ":output:0"
    renamed: dict[str, str] = {}
    added = []
    for node in _acts(nodes):
        before = output_names(node, {})
        if node.op in op_types.WRITES or (node.op in op_types.PYTHON and not before):
            added += _only_read(node, names, end)
        elif node.op in op_types.WRITES_AND_HANDS_ON:
            _handed_on(node)
        elif _has_urls(node):
            node.attr[_URLS].list.ClearField("s")
        else:
            _refused(node)
        after = output_names(node, {})
        renamed |= {
            f"{node.name}:{old}": f"{node.name}:{new}"
            for old, new in zip(before, after, strict=True)
            if old != new
        }
    nodes.extend(added)
    if function is not None and renamed:
        for node in nodes:
            for index, name in enumerate(node.input):
                node.input[index] = renamed.get(name, name)
        for key, value in function.ret.items():
            function.ret[key] = renamed.get(value, value)


def _only_read(node: Any, names: set[str], end: str) -> list[Any]:
    """Has an op without outputs read what it has read, and no more; returns a constant for that.

    Args:
      node: the op.
      names: of all ops of its body.
      end: what follows the constant's name in an input.
    """
    types = argument_types(node, {})
    read = [
        (name, number)
        for name, number in zip(data_inputs(node), types, strict=True)
        if number not in _pointers()
    ]
    controls = [name for name in node.input if name.startswith("^")]
    if not read:
        _become(node, "NoOp", controls)
        return []
    true = type(node)(name=f"{node.name}/{_TRUE}", op="Const", device=node.device)
    true.attr["dtype"].type, true.attr["value"].tensor.dtype = _boolean(), _boolean()
    true.attr["value"].tensor.tensor_shape.SetInParent()
    true.attr["value"].tensor.bool_val.append(True)
    # In the frame of a loop a constant has to wait for something of that frame.
    true.input.extend([f"^{op_of(name)}" for name, _ in read if op_of(name) in names][:1])
    _become(node, "Assert", [true.name + end, *(name for name, _ in read), *controls])
    node.attr["T"].list.type.extend(number for _, number in read)
    return [true]


def _handed_on(node: Any) -> None:
    """Has an op whose output is its first input only hand that on; it waits for the others."""
    first, *_ = data_inputs(node)
    number = argument_types(node, {})[0]
    _become(node, "Identity", [first, *(name for name in node.input if name.startswith("^"))])
    node.attr["T"].type = number


def _refused(node: Any) -> None:
    """Has an op fail that says why: nobody knows what would come out."""
    types = argument_types(node, {}, of_outputs=True)
    token = f"tfplace's own runs leave {node.op} out, which acts outside the program: it"
    _become(node, "PyFunc", [name for name in node.input if name.startswith("^")])
    node.attr["token"].s = token.encode()
    node.attr["Tin"].list.SetInParent()
    node.attr["Tout"].list.type.extend(types)


def _become(node: Any, op_type: str, inputs: Sequence[str]) -> None:
    """Makes it another op of the same name, device and colocation."""
    node.op = op_type
    del node.input[:]
    node.input.extend(inputs)
    for key in [key for key in node.attr if key != "_class"]:
        del node.attr[key]


@functools.cache
def _pointers() -> frozenset[int]:
    """Types of what is no value: a summary writer, a data set."""
    from tensorflow.core.framework import types_pb2

    return frozenset({types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT})


@functools.cache
def _boolean() -> int:
    from tensorflow.core.framework import types_pb2

    return int(types_pb2.DT_BOOL)
