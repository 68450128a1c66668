"""Single random changes of a SavedModel, each of which makes it another model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from graphs.function_library import bodies

Change = Callable[[], None]


def mutations(saved_model: Any, rng: random.Random) -> dict[str, list[tuple[str, Change]]]:
    """{kind: [(what, a function that changes saved_model so)]} of all that can be changed."""
    changes: dict[str, list[tuple[str, Change]]] = {}
    for meta_graph in saved_model.meta_graphs:
        for kind, what, change in (
            *of_nodes(meta_graph.graph_def, rng),
            *_of_functions(meta_graph.graph_def),
            *_of_interface(meta_graph),
        ):
            changes.setdefault(kind, []).append((what, change))
    return changes


def of_nodes(graph_def: Any, rng: random.Random) -> Iterator[tuple[str, str, Change]]:
    for function, nodes in bodies(graph_def):
        names = [node.name for node in nodes]
        for index, node in enumerate(nodes):
            where = f"{function}/{node.name}"
            yield "node removed", where, lambda n=nodes, i=index: n.__delitem__(i)
            yield "node renamed", where, lambda n=node: setattr(n, "name", n.name + "_x")
            yield "op type", where, lambda n=node: setattr(n, "op", n.op + "X")
            yield "control edge", where, lambda n=node, o=names[0]: n.input.append(f"^{o}")
            for number in range(len(node.input)):
                other = rng.choice([n for n in names if n != node.input[number]] or ["x"])
                move = lambda n=node, i=number, o=other: n.input.__setitem__(i, o)  # noqa: E731
                yield "edge moved", f"{where} input {number} from {other}", move
            for key, value in node.attr.items():
                remove = lambda n=node, k=key: n.attr.pop(k)  # noqa: E731
                yield "attribute removed", f"{where} {key}", remove
                if value.WhichOneof("value") == "tensor":
                    yield "constant", where, lambda v=value: _change_tensor(v.tensor, rng)
                elif change := _changed_attribute(value):
                    yield "attribute", f"{where} {key}", change


def _changed_attribute(value: Any) -> Change | None:
    kind = value.WhichOneof("value")
    if kind == "s":
        return lambda: setattr(value, "s", value.s + b"x")
    if kind in ("i", "f"):
        return lambda: setattr(value, kind, getattr(value, kind) + 1)
    if kind == "b":
        return lambda: setattr(value, "b", not value.b)
    if kind == "type":
        return lambda: setattr(value, "type", value.type % 20 + 1)
    if kind == "func":
        return lambda: setattr(value.func, "name", value.func.name + "_x")
    return None


def _change_tensor(tensor: Any, rng: random.Random) -> None:
    """Flips a bit of a constant's bytes, or changes its first value."""
    if tensor.tensor_content:
        content = bytearray(tensor.tensor_content)
        content[rng.randrange(len(content))] ^= 1
        tensor.tensor_content = bytes(content)
        return
    for field in ("float_val", "int_val", "int64_val", "string_val", "bool_val"):
        values = getattr(tensor, field)
        if len(values):
            old = values[0]
            values[0] = old + b"x" if field == "string_val" else type(old)(not old)
            return
    tensor.version_number += 1


def _of_functions(graph_def: Any) -> Iterator[tuple[str, str, Change]]:
    for index, function in enumerate(graph_def.library.function):
        name, signature = function.signature.name, function.signature
        functions = graph_def.library.function
        yield "function removed", name, lambda f=functions, i=index: f.__delitem__(i)
        yield "function renamed", name, lambda s=signature: setattr(s, "name", s.name + "_x")
        for argument in (*signature.input_arg, *signature.output_arg):
            where = f"{name} {argument.name}"
            yield "argument", where, lambda a=argument: setattr(a, "name", a.name + "_x")
            yield "argument type", where, lambda a=argument: setattr(a, "type", a.type % 20 + 1)
        for key in function.ret:
            change = lambda f=function, k=key: f.ret.__setitem__(k, f.ret[k] + "x")  # noqa: E731
            yield "returned value", f"{name} {key}", change


def _of_interface(meta_graph: Any) -> Iterator[tuple[str, str, Change]]:
    for name, signature in meta_graph.signature_def.items():
        signatures = meta_graph.signature_def
        yield "signature removed", name, lambda s=signatures, n=name: s.pop(n)
        method = signature.method_name + "x"
        yield "method", name, lambda s=signature, m=method: setattr(s, "method_name", m)
        for infos in (signature.inputs, signature.outputs):
            for key, value in infos.items():
                where = f"{name} {key}"
                yield "signature tensor", where, lambda v=value: setattr(v, "name", v.name + "0")
                yield "signature key", where, lambda i=infos, k=key: i.pop(k)
    for index, saved in enumerate(meta_graph.object_graph_def.nodes):
        if saved.WhichOneof("kind") == "variable":
            variable = saved.variable
            where = f"{index} {variable.name}"
            yield "variable", where, lambda v=variable: setattr(v, "name", v.name + "x")
            yield "trainable", where, lambda v=variable: setattr(v, "trainable", not v.trainable)
        for child in saved.children:
            where = f"{index} {child.local_name}"
            yield "object", where, lambda c=child: setattr(c, "local_name", c.local_name + "x")
    for key in meta_graph.collection_def:
        yield "collection", key, lambda k=key: meta_graph.collection_def.pop(k)
    saver = meta_graph.saver_def
    if saver.restore_op_name:
        yield "saver", "", lambda: setattr(saver, "restore_op_name", saver.restore_op_name + "x")
    for asset in meta_graph.asset_file_def:
        yield "asset", asset.filename, lambda a=asset: setattr(a, "filename", a.filename + "x")
