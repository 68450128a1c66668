"""Functional conditionals: which functions they run, and whether their branches can be opened.

TensorFlow lowers a conditional that says `_lower_using_switch_merge` before it places ops: a
Switch for each input, a Merge for each output, and between them the branches' ops, whose device
strings it honours (tried with TensorFlow 2.21: tf.function, v1 Session, tf.saved_model.load;
nested ones, in called functions, gradients of conditionals, Case). A branch runs at most once a
run, so an op graph can say what lies where. A loop's body runs many times, which it can't.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphs.building.callees import kept_whole, referred_functions

LOWERED = "_lower_using_switch_merge"
_TRIVIAL_OPS = frozenset({"Assert", "Const", "Identity", "IdentityN", "NoOp"})
CONDITIONALS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})


@dataclasses.dataclass(frozen=True)
class Branch:
    """One branch of a conditional.

    Attributes:
      label: "then" and "else", or "branch0" and so on: what its ops' path goes on with.
      function: the function that it is.
      output: which output of the conditional's Switch (of a Case, _SwitchN) it hangs on.
    """

    label: str
    function: str
    output: int


def branches_of(node: Any) -> list[Branch]:
    """The branches of a conditional, in the order of its attributes."""
    if "branches" in node.attr:
        functions = [function.name for function in node.attr["branches"].list.func]
        return [Branch(f"branch{i}", name, i) for i, name in enumerate(functions)]
    return [
        Branch(label, node.attr[f"{label}_branch"].func.name, output)
        for label, output in (("then", 1), ("else", 0))
        if f"{label}_branch" in node.attr
    ]


def opened_branches(node: Any, library: Mapping[str, Any]) -> list[Branch]:
    """The branches of a conditional that TensorFlow lowers; none for every other op."""
    if node.op not in CONDITIONALS or why_not_lowered(node, library):
        return []
    return branches_of(node)


def why_not_lowered(node: Any, library: Mapping[str, Any]) -> str:
    """Why TensorFlow runs the branches of a conditional as functions; empty where it opens them."""
    if LOWERED not in node.attr or not node.attr[LOWERED].b:
        return f"it does not say {LOWERED}"
    branches = branches_of(node)
    if not branches or any(branch.function not in library for branch in branches):
        return "its branches are not in the model"
    if not _fits_branches(node, [library[branch.function].signature for branch in branches]):
        return "its branches take or make something else than it says"
    if "branches" not in node.attr and not _is_bool(node):
        return "its condition is no bool"
    for branch in branches:
        if reason := kept_whole(node, library[branch.function]):
            return reason
    return ""


def has_nothing_to_place(node: Any, library: Mapping[str, Any]) -> bool:
    """Whether the branches only assert something or hand constants and inputs on."""
    return all(
        inner.op in _TRIVIAL_OPS
        for branch in branches_of(node)
        for inner in library[branch.function].node_def
    )


def calls_back(
    branches: Sequence[Branch], calls: Sequence[str], library: Mapping[str, Any]
) -> bool:
    """Whether a branch leads to a function that is being opened: a recursion that ends by it."""
    pending = [branch.function for branch in branches]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in calls:
            return True
        if name not in seen:
            seen.add(name)
            pending.extend(referred_functions(library[name].node_def, library))
    return False


def boundary_names(name: str, node: Any) -> Iterator[str]:
    """Paths that the opened conditional `name` takes, or begins those of its ops with."""
    yield from (f"{name}/{each}" for each in ("predicate", "branch_executed", "output_control"))
    yield from (f"{name}/{branch.label}" for branch in branches_of(node))
    for kind, key in (("input", "Tin"), ("output", "Tout")):
        yield from (f"{name}/{kind}_{i}" for i in range(len(node.attr[key].list.type)))


def _fits_branches(node: Any, signatures: Sequence[Any]) -> bool:
    """Whether inputs and outputs are as many everywhere; not so in damaged models."""
    if not {"Tin", "Tout"} <= set(node.attr):  # reading a missing key of a proto map would add it
        return False
    num_inputs = sum(not name.startswith("^") for name in node.input) - 1
    num_outputs = len(node.attr["Tout"].list.type)
    return len(node.attr["Tin"].list.type) == num_inputs and all(
        (len(signature.input_arg), len(signature.output_arg)) == (num_inputs, num_outputs)
        for signature in signatures
    )


def _is_bool(node: Any) -> bool:
    import tensorflow as tf

    return "Tcond" in node.attr and bool(node.attr["Tcond"].type == tf.bool.as_datatype_enum)
