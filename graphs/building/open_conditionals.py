"""Opens a conditional as TensorFlow lowers it: Switches, the branches' ops, Merges.

The ops of a conditional "c" get these names in the flat graph:

- "c/predicate" is the Switch of the condition itself. Its outputs lead to
  "c/then/input_control" and "c/else/input_control", each of which is live only in a run that takes
  its branch. The ops of a branch that have no inputs wait for them; where the conditional has
  control inputs, so do those that take an argument.
- "c/input_0" is the Switch of the first input after the condition. TensorFlow puts it on the
  device of the op that makes the input, so it is tied to that op.
- "c/then/op" and "c/else/op" are the branches' ops; in a Case they are "c/branch0/op" and so on.
- "c/output_0" is the Merge of the first output, and "c/branch_executed" that of side effects.

Predicate, input controls and Merges have one device: that of the conditional's own NodeDef.

Only one branch runs. So the ops of each of n branches count as 1 / n (`RawNode.share`), and in the
op graph each branch begins after the end of the one before it (`RawNode.after`). Then the simulated
time of all branches, one after the other, is what the conditional takes on average. Otherwise two
branches on two devices would look as if they ran side by side.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from graphs.building.conditionals import Branch
from graphs.building.raw_node import NOT_OF_THE_MODEL, Body, RawNode
from graphs.protos import NodeDef


class BodyOpener(Protocol):
    """What opens the body of a function: `CallOpener`, which in turn opens conditionals by this."""

    raw: dict[str, RawNode]
    alias: dict[str, str]
    side_effects: dict[str, list[str]]
    call_outputs: dict[str, list[str]]
    conditional_of: dict[str, str]

    def open_body(
        self, path: str, call: RawNode, function: str, inputs: Sequence[str], body: Body
    ) -> tuple[list[str], list[str]]:
        """Opens a function as `path`; returns its outputs and its side effects."""


def open_conditional(
    opener: BodyOpener, name: str, raw: RawNode, branches: Sequence[Branch], body: Body
) -> None:
    """Adds the raw nodes of a conditional of path `name` that stands in `body`."""
    inner = dataclasses.replace(body, share=body.share / len(branches), conditional=name)
    boundary = _Boundary(name, raw, branches, inner.share)
    opener.raw.update(boundary.switches())
    outputs: list[list[str]] = []
    effects: list[str] = []
    ends: list[str] = []
    for branch in branches:
        path = f"{name}/{branch.label}"
        opener.raw[f"{path}/input_control"] = boundary.input_control(branch, ends)
        inputs = [f"{name}/input_{i}:{branch.output}" for i in range(len(raw.inputs) - 1)]
        made, effected = opener.open_body(path, raw, branch.function, inputs, inner)
        outputs.append(made)
        effects += effected
        ends = [*made, *effected]
    merged = list(zip(*outputs, strict=True))
    for index, tensors in enumerate(merged):
        opener.raw[f"{name}/output_{index}"] = boundary.merge(
            raw.node.attr["Tout"].list.type[index], list(tensors), body.share
        )
        opener.alias[f"{name}:{index}"] = f"{name}/output_{index}:0"
    controls = [f"{name}/{branch.label}/input_control:0" for branch in branches]
    executed = boundary.merge(boundary.selector_type, controls, body.share)
    executed.controls = effects
    opener.raw[f"{name}/branch_executed"] = executed
    opener.call_outputs[name] = [f"{name}/branch_executed:0"]
    opener.side_effects[name] = [f"{name}/branch_executed"] if effects else []
    opener.conditional_of[name] = body.conditional


class _Boundary:
    """Makes the nodes between the branches of a conditional and what is around it."""

    def __init__(self, name: str, raw: RawNode, branches: Sequence[Branch], share: float):
        self.name = name
        self.raw = raw
        self.num_branches = len(branches)
        self.is_case = "branches" in raw.node.attr
        self.share = share
        self.selector_type = _INT32 if self.is_case else _BOOL

    def switches(self) -> Mapping[str, RawNode]:
        """{path: node} of the predicate and of the Switch of each input."""
        selector, *inputs = self.raw.inputs
        predicate = self._switch(self.selector_type, selector)
        predicate.controls = list(self.raw.controls)
        predicate.origin = self.raw.origin
        predicate.device = self.raw.device
        predicate.beside = self._classes()
        switches = {f"{self.name}/predicate": predicate}
        types = self.raw.node.attr["Tin"].list.type
        for index, (tensor, dtype) in enumerate(zip(inputs, types, strict=True)):
            switch = self._switch(dtype, tensor)
            switch.follows_input = True
            switches[f"{self.name}/input_{index}"] = switch
        return switches

    def input_control(self, branch: Branch, after: Sequence[str]) -> RawNode:
        """The gate of a branch, which the op graph puts after the ops of `after`."""
        node = _node("Identity", self.selector_type)
        source = f"{self.name}/predicate:{branch.output}"
        raw = self._of_the_conditional(node, [source], self.share)
        raw.after = after
        return raw

    def merge(self, dtype: int, inputs: list[str], share: float) -> RawNode:
        """The Merge of what the branches make for one output."""
        node = _node("Merge", dtype)
        node.attr["N"].i = len(inputs)
        return self._of_the_conditional(node, inputs, share)

    def _switch(self, dtype: int, tensor: str) -> RawNode:
        node = _node("_SwitchN" if self.is_case else "Switch", dtype)
        if self.is_case:
            node.attr["num_outs"].i = self.num_branches
        inputs = [tensor, self.raw.inputs[0]]
        return RawNode(node, inputs, [], NOT_OF_THE_MODEL, "", self.share)

    def _of_the_conditional(self, node: NodeDef, inputs: list[str], share: float) -> RawNode:
        return RawNode(node, inputs, [], self.raw.origin, self.raw.device, share)

    def _classes(self) -> list[str]:
        """The paths of the ops whose device the conditional must have."""
        node = self.raw.node
        values = node.attr["_class"].list.s if "_class" in node.attr else ()
        scope = self.name[: -len(self.raw.origin.node)]
        return [scope + v.decode(errors="replace").removeprefix("loc:@") for v in values]


_INT32, _BOOL = 3, 10  # tensorflow.DataType


def _node(op: str, dtype: int) -> NodeDef:
    from tensorflow.core.framework import node_def_pb2

    node = node_def_pb2.NodeDef(op=op)
    node.attr["T"].type = dtype
    return node
