"""Opens function calls and conditionals, whose ops get their call path as their name.

Outputs of calls keep the calls' names here, and nothing is pruned; flatten.py does both.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from graphs import op_types
from graphs.building import conditionals
from graphs.building.op_outputs import output_offsets, signature_of
from graphs.building.raw_node import (
    NOT_OF_THE_MODEL,
    UNIT_OPS,
    Body,
    RawNode,
    no_op,
    paths_of,
    substituted,
)
from graphs.errors import ModelError
from graphs.flat_graph import Origin
from graphs.function_library import CONVERTS_WEIGHTS, called_function, kept_whole, reached_functions
from graphs.names import data_inputs, free_name, with_index
from graphs.protos import FunctionDef, Library, NodeDef

_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarHandleOp"})
"""Ops that TensorFlow calls stateful, and that change nothing."""


class CallOpener:
    """Collects the nodes of a graph and of all bodies that it calls.

    Attributes:
      library: {name: FunctionDef}.
      open_conditionals: whether the branches of conditionals are opened, too.
      raw: {flat name: node}.
      alias: {output of a call: the tensor that it is}.
      side_effects: {call or opened conditional: ops that run with it}.
      call_outputs: {call: the tensors that are its outputs}.
      waits_of_empty: {call of a function that makes and does nothing: what to wait for instead}.
      output_control: {call: the no-op that runs after it}.
      conditional_of: {call: the opened conditional that it is in a branch of, or ""}.
      unit_reason: {unit: why it stays one}.
      opened: {opened conditional: its NodeDef}.
    """

    def __init__(self, library: Library, open_conditionals: bool = True):
        self.library = library
        self.open_conditionals = open_conditionals
        self.raw: dict[str, RawNode] = {}
        self.alias: dict[str, str] = {}
        self.side_effects: dict[str, list[str]] = {}
        self.call_outputs: dict[str, list[str]] = {}
        self.waits_of_empty: dict[str, list[str]] = {}
        self.output_control: dict[str, str] = {}
        self._gate: dict[str, str] = {}
        self.conditional_of: dict[str, str] = {}
        self.unit_reason: dict[str, str] = {}
        self.opened: dict[str, NodeDef] = {}
        self._paths: dict[str, frozenset[str]] = {}

    def open_main(self, nodes: Sequence[NodeDef]) -> None:
        """Adds the nodes of the main graph and all that they call."""
        may_open = bool(self.library) or any(node.op in op_types.CONDITIONALS for node in nodes)
        body = Body(paths=paths_of(nodes) if may_open else frozenset())
        for node in nodes:
            inputs = [with_index(name) for name in data_inputs(node)]
            controls = [name[1:] for name in node.input if name.startswith("^")]
            raw = RawNode(node, inputs, controls, Origin("", node.name), node.device)
            self._add(node.name, raw, body)

    def _add(self, name: str, raw: RawNode, body: Body) -> None:
        """Adds a node that stands in `body` under its flat name, opened where it can be."""
        if CONVERTS_WEIGHTS in raw.node.attr:  # it does nothing but in the first step
            self.raw[name] = dataclasses.replace(raw, node=no_op(name), inputs=[])
            return
        callee = called_function(raw.node, self.library)
        reason = ""
        if callee is not None:
            reason = kept_whole(raw.node, self.library[callee])
            if not reason:
                self._open_call(name, raw, callee, body)
                return
        elif raw.node.op in op_types.CONDITIONALS:
            reason = self._why_whole(raw, body)
            if not reason:
                self.opened[name] = raw.node
                self._open_conditional(name, raw, body)
                return
        elif raw.node.op in UNIT_OPS:
            reason = UNIT_OPS[raw.node.op]
        if reason:
            self.unit_reason[name] = reason
        self.raw[name] = raw

    def _open_conditional(self, name: str, raw: RawNode, body: Body) -> None:
        """Adds the raw nodes of a conditional of path `name` that stands in `body`."""
        branches = conditionals.branches_of(raw.node)
        inner = dataclasses.replace(body, share=body.share / len(branches), conditional=name)
        boundary = conditionals.Boundary(name, raw, branches, inner.share)
        self.raw.update(boundary.switches())
        outputs: list[list[str]] = []
        effects: list[str] = []
        ends: list[str] = []
        for branch in branches:
            path = f"{name}/{branch.label}"
            self.raw[f"{path}/input_control"] = boundary.input_control(branch, ends)
            inputs = [f"{name}/input_{i}:{branch.output}" for i in range(len(raw.inputs) - 1)]
            made, effected = self._open_body(path, raw, branch.function, inputs, inner)
            outputs.append(made)
            effects += effected
            ends = [*made, *effected]
        merged = list(zip(*outputs, strict=True))
        for index, tensors in enumerate(merged):
            self.raw[f"{name}/output_{index}"] = boundary.merge(
                raw.node.attr["Tout"].list.type[index], list(tensors), body.share
            )
            self.alias[f"{name}:{index}"] = f"{name}/output_{index}:0"
        controls = [f"{name}/{branch.label}/input_control:0" for branch in branches]
        executed = boundary.merge(boundary.selector_type, controls, body.share)
        executed.controls = effects
        self.raw[f"{name}/branch_executed"] = executed
        self.call_outputs[name] = [f"{name}/branch_executed:0"]
        self.side_effects[name] = [f"{name}/branch_executed"] if effects else []
        self.conditional_of[name] = body.conditional

    def _why_whole(self, raw: RawNode, body: Body) -> str:
        """Why a conditional of `body` stays one unit; empty for one that is opened."""
        if not self.open_conditionals:
            return "a conditional that the training step made for the run has rewritten"
        if reason := conditionals.why_not_lowered(raw.node, self.library):
            return f"a conditional that TensorFlow runs as functions: {reason}"
        if conditionals.has_nothing_to_place(raw.node, self.library):
            return "a conditional of constants and assertions"
        if not set(body.calls).isdisjoint(reached_functions([raw.node], self.library)):
            return "a conditional that ends a recursion"
        if not body.paths.isdisjoint(conditionals.boundary_names(raw.origin.node, raw.node)):
            return "a conditional whose ops would take names of other ops"
        return ""

    def _open_call(self, name: str, call: RawNode, callee: str, body: Body) -> None:
        if callee in body.calls:
            raise ModelError(
                f"opening the function calls of {name!r}: function {callee!r} calls itself, and "
                "tfplace can place functions only where they end; rewrite the recursion as a loop"
            )
        path = name + self._suffix(call.node.name, callee, body)
        inner = self._paths_in(callee)
        self.output_control[name] = f"{path}/{free_name('output_control', inner)}"
        if call.controls:
            gate = self._gate[path] = f"{path}/{free_name('input_control', inner)}"
            self.raw[gate] = RawNode(
                no_op(gate), [], list(call.controls), NOT_OF_THE_MODEL, call.device, body.share
            )
        outputs, effects = self._open_body(path, call, callee, call.inputs, body)
        if call.node.op == callee:
            effects = list(dict.fromkeys([*effects, *self._unasked_effects(path, callee)]))
        if call.controls:  # in a body that does nothing with an argument, too
            self._have_outputs_wait(path, call, callee, outputs, body)
        for index, tensor in enumerate(outputs):
            self.alias[f"{name}:{index}"] = tensor
        self.call_outputs[name] = outputs
        self.side_effects[name] = effects
        if call.controls and not effects and not outputs:
            self.waits_of_empty[name] = [self._gate[path]]
        self.conditional_of[name] = body.conditional

    def _have_outputs_wait(
        self, path: str, call: RawNode, function: str, outputs: list[str], body: Body
    ) -> None:
        """Replaces outputs that are arguments by what waits for the call's control inputs, too."""
        signature = self.library[function].signature
        given, gate = {argument.name for argument in signature.input_arg}, self._gate[path]
        for index, output in enumerate(signature.output_arg):
            if self.library[function].ret[output.name] in given:
                name = f"{path}/{free_name(f'output_{index}', self._paths_in(function))}"
                node = type(call.node)(op="Identity")
                node.attr["T"].type = output.type or call.node.attr[output.type_attr].type
                inputs, outputs[index] = [outputs[index]], f"{name}:0"
                self.raw[name] = RawNode(
                    node, inputs, [gate], NOT_OF_THE_MODEL, "", body.share, body.conditional,
                    follows_input=True,
                )  # fmt: skip

    def _unasked_effects(self, path: str, function: str) -> Iterator[str]:
        """The ops of a body that a call by the function's own name runs, though nothing reads them.

        Such functions of TensorFlow 1 don't list what they run besides, as those of TensorFlow 2 do
        (tried with TensorFlow 2.21: PartitionedCall runs only what is listed).
        """
        for node in self.library[function].node_def:
            name = f"{path}/{node.name}"
            if name in self.call_outputs:
                yield from [name] if self.side_effects.get(name) else []
            elif node.op not in _READS and signature_of(node, self.library).is_stateful:
                yield name

    def _suffix(self, call: str, callee: str, body: Body) -> str:
        """What a call's path ends with, so that its ops take no name of an op beside the call."""
        own = (f"output_{i}" for i in range(len(self.library[callee].signature.output_arg)))
        inner = (*self._paths_in(callee), "input_control", "output_control", *own)
        path = call
        while any(f"{path}/{each}" in body.paths for each in inner) or (
            path != call and path in body.paths
        ):
            path += "_"
        return path[len(call) :]

    def _paths_in(self, function: str) -> frozenset[str]:
        if function not in self._paths:
            self._paths[function] = paths_of(self.library[function].node_def)
        return self._paths[function]

    def _open_body(
        self, path: str, call: RawNode, function: str, inputs: Sequence[str], body: Body
    ) -> tuple[list[str], list[str]]:
        """Adds a function's ops under `path`.

        If there is a "path/input_control", ops without inputs wait for it. If the call has control
        inputs, ops that take an argument wait for it as well. In a branch of a conditional, ops
        without inputs wait at least for the branch's gate, so that they don't run with another
        branch.

        Returns:
          The function's outputs and its side effects, as flat names or aliases.
        """
        definition = self.library[function]
        arguments = [argument.name for argument in definition.signature.input_arg]
        if len(arguments) > len(inputs):
            raise ModelError(
                f"opening the call {path!r}: function {function!r} takes {len(arguments)} inputs, "
                f"the call gives {len(inputs)}; the model is damaged, save it again"
            )
        paths = self._paths_in(function)
        inner = dataclasses.replace(body, calls=(*body.calls, function), paths=paths)
        local = dict(zip(arguments, inputs, strict=False))
        own_gate = self._gate.get(path, f"{path}/input_control")
        gate = own_gate if own_gate in self.raw else body.gate
        inner = dataclasses.replace(inner, gate=gate)
        scope = _BodyScope(path, local, definition, self.library, gate)
        for node in definition.node_def:
            node_inputs, controls = scope.inputs_of(node)
            takes_argument = bool(call.controls) and any(i in local for i in node.input)
            if gate and gate not in controls and (not node.input or takes_argument):
                controls.append(gate)
            raw = RawNode(
                substituted(node, call.node),
                node_inputs,
                controls,
                Origin(function, node.name, inner.calls),
                node.device or call.device,
                body.share,
                body.conditional,
            )
            self._add(f"{path}/{node.name}", raw, inner)
        outputs = [scope.tensor(definition.ret[a.name]) for a in definition.signature.output_arg]
        # A proto map has another order in each process; the flat graph is a key of the cost cache.
        return outputs, [f"{path}/{op}" for op in sorted(definition.control_ret.values())]


class _BodyScope:
    """Makes the names inside one call of a function flat; `gate` is live only if the body runs."""

    def __init__(
        self,
        path: str,
        arguments: Mapping[str, str],
        function: FunctionDef,
        library: Library,
        gate: str,
    ):
        self.path = path
        self.gate = gate
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

    def inputs_of(self, node: NodeDef) -> tuple[list[str], list[str]]:
        """The flat tensors that a node of the body takes, and the flat ops that it waits for."""
        inputs = [self.tensor(name) for name in data_inputs(node)]
        controls = []
        for name in (name[1:] for name in node.input if name.startswith("^")):
            if name in self.arguments:
                controls.append(self.arguments[name].split(":")[0])
                # An argument's Switch runs whichever branch is taken, the gate only in its own.
                controls += [self.gate] if self.gate else []
            else:
                controls.append(f"{self.path}/{name}")
        return inputs, controls
