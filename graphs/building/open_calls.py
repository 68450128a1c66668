"""Opens function calls: ops of a body get their call path as name; aliases tell what is what.

Nothing is resolved or pruned here; see flatten.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.building.op_outputs import output_offsets
from graphs.errors import ModelError
from graphs.flat_graph import Origin
from graphs.names import with_index

CALL_OPS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "RemoteCall"})
UNIT_OPS = {
    "While": "a loop",
    "StatelessWhile": "a loop",
    "If": "a conditional",
    "StatelessIf": "a conditional",
    "Case": "a conditional",
    "StatelessCase": "a conditional",
    "SymbolicGradient": "a gradient function",
    "MapDefun": "a mapped function",
    "XlaLaunch": "compiled by XLA",
}
KEPT_WHOLE = {
    "_XlaMustCompile": "compiled by XLA",
    "api_implements": "a function that TensorFlow may swap for another implementation",
    "_noinline": "a function that says _noinline",
}
MAX_CALL_DEPTH = 200


@dataclasses.dataclass
class RawNode:
    """A node before names are resolved; `inputs` and `controls` are flat names or aliases."""

    node: Any
    inputs: list[str]
    controls: list[str]
    origin: Origin
    device: str


class CallOpener:
    """Collects raw nodes, aliases for call outputs and arguments, and side effects of calls."""

    def __init__(self, library: Mapping[str, Any]):
        self.library = library
        self.raw: dict[str, RawNode] = {}
        self.alias: dict[str, str] = {}
        self.side_effects: dict[str, list[str]] = {}
        self.call_outputs: dict[str, list[str]] = {}
        self.unit_reason: dict[str, str] = {}

    def open_main(self, nodes: Sequence[Any]) -> None:
        for node in nodes:
            inputs, controls = _split_inputs(node.input)
            raw = RawNode(node, inputs, controls, Origin("", node.name), node.device)
            self._add(node.name, raw, ())

    def _add(self, name: str, raw: RawNode, calls: tuple[str, ...]) -> None:
        callee = called_function(raw.node, self.library)
        if callee is None:
            if raw.node.op in UNIT_OPS:
                self.unit_reason[name] = UNIT_OPS[raw.node.op]
            self.raw[name] = raw
        elif reason := kept_whole(raw.node, self.library[callee]):
            self.unit_reason[name] = reason
            self.raw[name] = raw
        else:
            self._open_call(name, raw, callee, calls)

    def _open_call(self, name: str, call: RawNode, callee: str, calls: tuple[str, ...]) -> None:
        if callee in calls or len(calls) >= MAX_CALL_DEPTH:
            raise ModelError(
                f"opening the function calls of {name!r}: function {callee!r} calls itself, and "
                "tfplace can place functions only where they end; rewrite the recursion as a loop"
            )
        function = self.library[callee]
        chain = (*calls, callee)
        arguments = [argument.name for argument in function.signature.input_arg]
        if len(arguments) > len(call.inputs):
            raise ModelError(
                f"opening the call {name!r}: function {callee!r} takes {len(arguments)} inputs, "
                f"the call gives {len(call.inputs)}; the model is damaged, save it again"
            )
        local = dict(zip(arguments, call.inputs, strict=False))
        waits = self._input_control(name, call)
        scope = _BodyScope(name, local, function, self.library)
        for body_node in function.node_def:
            inputs, controls = scope.inputs_of(body_node)
            if waits and (not body_node.input or any(i in local for i in body_node.input)):
                controls.append(waits)
            raw = RawNode(
                substituted(body_node, call.node),
                inputs,
                controls,
                Origin(callee, body_node.name, chain),
                body_node.device or call.device,
            )
            self._add(f"{name}/{body_node.name}", raw, chain)
        outputs = [scope.tensor(function.ret[a.name]) for a in function.signature.output_arg]
        for index, tensor in enumerate(outputs):
            self.alias[f"{name}:{index}"] = tensor
        self.call_outputs[name] = outputs
        self.side_effects[name] = [f"{name}/{op}" for op in function.control_ret.values()]

    def _input_control(self, name: str, call: RawNode) -> str:
        if not call.controls:
            return ""
        path = f"{name}/input_control"
        self.raw[path] = RawNode(
            no_op(path), [], list(call.controls), Origin("", "", ()), call.device
        )
        return path


class _BodyScope:
    """Names inside one call of a function, made flat."""

    def __init__(
        self, path: str, arguments: Mapping[str, str], function: Any, library: Mapping[str, Any]
    ):
        self.path = path
        self.arguments = arguments
        self.library = library
        self.nodes = {node.name: node for node in function.node_def}

    def tensor(self, name: str) -> str:
        """The flat tensor of "node:out:i", "node:out" or an argument."""
        if name in self.arguments:
            return self.arguments[name]
        parts = name.split(":")
        node = self.nodes.get(parts[0])
        if node is None:
            raise ModelError(
                f"opening the call {self.path!r}: its body uses {name!r}, which is neither an "
                "argument nor an op of it; the model is damaged, save it again"
            )
        if len(parts) == 1:
            return f"{self.path}/{node.name}:0"
        if parts[1].isdigit():
            return f"{self.path}/{node.name}:{parts[1]}"
        offset = output_offsets(node, self.library).get(parts[1])
        if offset is None:
            raise ModelError(
                f"opening the call {self.path!r}: op {node.name!r} ({node.op}) has no output "
                f"{parts[1]!r}; the model is damaged or made by another TensorFlow version"
            )
        index = offset + (int(parts[2]) if len(parts) > 2 else 0)
        return f"{self.path}/{node.name}:{index}"

    def inputs_of(self, node: Any) -> tuple[list[str], list[str]]:
        inputs = [self.tensor(name) for name in node.input if not name.startswith("^")]
        controls = [
            self.arguments[name[1:]].split(":")[0]
            if name[1:] in self.arguments
            else f"{self.path}/{name[1:]}"
            for name in node.input
            if name.startswith("^")
        ]
        return inputs, controls


def called_function(node: Any, library: Mapping[str, Any]) -> str | None:
    """The function that a node calls and that is in the library, else None."""
    if node.op in CALL_OPS:
        name = node.attr["f"].func.name
        return name if name in library else None
    return node.op if node.op in library else None


def kept_whole(node: Any, function: Any) -> str:
    """Why a call stays one unit; empty for calls that are opened.

    TensorFlow never opens calls with these attributes: XLA compiles the whole function; a
    function with `api_implements` may be swapped for another one (cuDNN's LSTM) at run time.
    """
    for key, reason in KEPT_WHOLE.items():  # reading a missing key of a proto map would add it
        for each in (node, function):
            if key in each.attr and (each.attr[key].b or each.attr[key].s):
                return reason
    return ""


def substituted(node: Any, call: Any) -> Any:
    """`node` with attributes that the function leaves open taken from its call."""
    if not any(value.placeholder for value in node.attr.values()):
        return node
    result = type(node)()
    result.CopyFrom(node)
    for key, value in node.attr.items():
        if value.placeholder and value.placeholder in call.attr:
            result.attr[key].CopyFrom(call.attr[value.placeholder])
    return result


def _split_inputs(inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    return (
        [with_index(name) for name in inputs if not name.startswith("^")],
        [name[1:] for name in inputs if name.startswith("^")],
    )


def no_op(name: str) -> Any:
    from tensorflow.core.framework import node_def_pb2

    return node_def_pb2.NodeDef(name=name, op="NoOp")
