"""Functional conditionals: which functions they run, and whether their branches can be opened.

Before it places ops, TensorFlow lowers a conditional that says `_lower_using_switch_merge`: it puts
a Switch for each input, a Merge for each output, and the branches' ops between them. It honours the
device strings of these ops (tried with TensorFlow 2.21: tf.function, v1 Session,
tf.saved_model.load; nested conditionals, in called functions, gradients of conditionals, Case).
A branch runs at most once a run, so an op graph can hold its ops. The body of a loop runs many
times, so an op graph can't.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.raw_node import NOT_OF_THE_MODEL, RawNode
from graphs.function_library import kept_whole
from graphs.names import beside, data_inputs, op_of, parse_input
from graphs.protos import Library, NodeDef, Nodes, OpDef

LOWERED = "_lower_using_switch_merge"


@dataclasses.dataclass(frozen=True)
class Branch:
    """One branch of a conditional.

    Attributes:
      label: "then" and "else", or "branch0" and so on; its ops' path goes on with it.
      function: the function that it is.
      output: the output of the conditional's Switch (of a Case, _SwitchN) that it hangs on.
    """

    label: str
    function: str
    output: int


def branches_of(node: NodeDef) -> list[Branch]:
    """The branches of a conditional, in the order of its attributes."""
    if "branches" in node.attr:
        functions = [function.name for function in node.attr["branches"].list.func]
        return [Branch(f"branch{i}", name, i) for i, name in enumerate(functions)]
    return [
        Branch(label, node.attr[f"{label}_branch"].func.name, output)
        for label, output in (("then", 1), ("else", 0))
        if f"{label}_branch" in node.attr
    ]


def opened_branches(node: NodeDef, library: Library) -> list[Branch]:
    """The branches of a conditional that TensorFlow lowers; none for every other op."""
    if node.op not in op_types.CONDITIONALS or why_not_lowered(node, library):
        return []
    return branches_of(node)


def why_not_lowered(node: NodeDef, library: Library) -> str:
    """Why TensorFlow runs the branches of a conditional as functions; empty where it opens them."""
    if LOWERED not in node.attr or not node.attr[LOWERED].b:
        return f"it does not say {LOWERED}"
    branches = branches_of(node)
    if not branches or any(branch.function not in library for branch in branches):
        return "its branches are not in the model"
    if not _fits_branches(node, [library[branch.function].signature for branch in branches]):
        return "its branches take or make something else than it says"
    is_bool = "Tcond" in node.attr and node.attr["Tcond"].type == tf.bool.as_datatype_enum
    if "branches" not in node.attr and not is_bool:
        return "its condition is no bool"
    for branch in branches:
        if reason := kept_whole(node, library[branch.function]):
            return reason
    return ""


def has_nothing_to_place(node: NodeDef, library: Library) -> bool:
    """Whether the branches only assert something or hand constants and inputs on."""
    return all(
        inner.op in op_types.TRIVIAL
        for branch in branches_of(node)
        for inner in library[branch.function].node_def
    )


def boundary_names(name: str, node: NodeDef) -> Iterator[str]:
    """The paths that opening the conditional `name` adds, or begins the paths of its ops with."""
    yield from (f"{name}/{each}" for each in ("predicate", "branch_executed", "output_control"))
    yield from (f"{name}/{branch.label}" for branch in branches_of(node))
    for kind, key in (("input", "Tin"), ("output", "Tout")):
        yield from (f"{name}/{kind}_{i}" for i in range(len(node.attr[key].list.type)))


def _fits_branches(node: NodeDef, signatures: Sequence[OpDef]) -> bool:
    """Whether the branches take and make as many tensors as the op says, unless it is damaged."""
    if not {"Tin", "Tout"} <= set(node.attr):  # reading a missing key of a proto map would add it
        return False
    num_inputs = len(data_inputs(node)) - 1
    num_outputs = len(node.attr["Tout"].list.type)
    return len(node.attr["Tin"].list.type) == num_inputs and all(
        (len(signature.input_arg), len(signature.output_arg)) == (num_inputs, num_outputs)
        for signature in signatures
    )


def put_into_optional(optional: str, nodes: Nodes) -> list[str]:
    """What OptionalGetValue may take out of an Optional of one value, tensors as inputs name them.

    What one branch of a conditional takes out, the same branch of another one put in, where both
    ask the same predicate.

    Args:
      optional: as an input names it.
      nodes: {name: NodeDef, or one that is alike} of a graph whose conditionals were opened.
    """
    found: dict[str, None] = {}
    seen, pending = set[str](), [(optional, "")]
    while pending:
        name, switch = pending.pop()
        node = nodes.get(op_of(name))
        if node is None or name in seen:
            continue
        seen.add(name)
        inputs = data_inputs(node)
        if node.op == "OptionalFromValue":
            found[inputs[0]] = None
        elif node.op == "OptionalGetValue":  # it held an Optional
            pending += [(each, switch) for each in put_into_optional(inputs[0], nodes)]
        elif node.op in ("Switch", "_SwitchN"):
            pending.append((inputs[0], name))
        elif node.op == "Merge":
            pending += [(each, "") for each in _merged_for(node, inputs, switch, nodes)]
        elif node.op == "Identity":
            pending.append((inputs[0], switch))
    return list(found)


def _merged_for(merge: NodeDef, inputs: Sequence[str], switch: str, nodes: Nodes) -> Sequence[str]:
    """What a Merge hands to this output of a Switch, "" for any; see below."""
    predicate = nodes.get(f"{merge.name.rpartition('/output_')[0]}/predicate")
    if not switch or predicate is None:
        return inputs
    source = parse_input(switch)
    node = nodes[source.op]
    if node.input[1] != predicate.input[0]:
        return inputs
    # A Switch's outputs are of "else" and "then", a Merge's inputs of "then" and "else".
    index = source.output if node.op == "_SwitchN" else 1 - source.output
    return inputs[index : index + 1]


# Opens a conditional as TensorFlow lowers it: Switches, the branches' ops, Merges, whose names and
# devices docs/tensorflow_facts.md lists.
#
# Only one branch runs. So the ops of each of n branches count as 1 / n (`RawNode.share`), and in
# the op graph each branch begins after the end of the one before it (`RawNode.after`). Otherwise
# two branches on two devices would look as if they ran side by side.


class Boundary:
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
        scope = self.name[: -len(self.raw.origin.node)]
        predicate.beside = [scope + op for op in beside(self.raw.node)]
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
        raw = self._of_the_conditional(node, [f"{self.name}/predicate:{branch.output}"], self.share)
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
        return RawNode(node, [tensor, self.raw.inputs[0]], [], NOT_OF_THE_MODEL, "", self.share)

    def _of_the_conditional(self, node: NodeDef, inputs: list[str], share: float) -> RawNode:
        return RawNode(node, inputs, [], self.raw.origin, self.raw.device, share)


_INT32, _BOOL = 3, 10  # tensorflow.DataType


def _node(op: str, dtype: int) -> NodeDef:
    node = tf.compat.v1.NodeDef(op=op)
    node.attr["T"].type = dtype
    return node
