"""Writes a split step into a graph of ops, beside the ops of the unsplit one."""

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from graphs.building.op_outputs import output_dtype
from graphs.errors import UsageError
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.graph_view import reached
from graphs.names import free_name, op_of, rename_beside, with_index
from graphs.protos import GraphDef, MetaGraphDef, NodeDef, Nodes, TensorInfo
from graphs.source_model import SourceModel
from rewrite.split.split_step import SplitStep
from rewrite.written_signature import signature_call, whole_signature

WHOLE_SCOPE = "whole"
"""The unsplit step's ops whose names the split one took lie in this scope."""


@dataclasses.dataclass(frozen=True)
class GraphWithBoth:
    """A graph that holds the split and the unsplit step."""

    graph_def: GraphDef  # the split step under the names of the unsplit one's whole ops
    whole_name: Mapping[str, str]  # {op of the unsplit step: its name now}, where that has changed

    def whole_tensor(self, name: str) -> str:
        """A tensor or op of the unsplit step by its name now."""
        op, colon, index = name.partition(":")
        return f"{self.whole_name.get(op, op)}{colon}{index}"


def split_beside(
    graph_def: GraphDef,
    flat: FlatGraph,
    step: SplitStep,
    outputs: Mapping[str, str],
    fetches: Sequence[str],
) -> GraphWithBoth:
    """Makes the graph that holds both.

    An op that nothing of the split changes serves both steps: variables, what is fed, constants.
    Where the split step has an op of the same name that reads something else, the unsplit step's
    own one moves to a scope, with everything that reads it there. So do its reads of variables:
    those of the split step may be made to wait for more of it, which others must not wait for.

    Args:
      graph_def: the model's main graph.
      step: the split step; the fetches that `outputs` names are Identity ops.
      outputs: {Identity op of the split step: the fetched tensor "op:i" that it stands for}.
      fetches: of the unsplit step, by the names that the main graph has.
    """
    originals = {node.name: node for node in graph_def.node}
    made = {node.name: node for node in step.graph_def.node if node.name not in outputs}
    fetched = _fetched(step, outputs, made)
    ended = {
        op: after
        for op, after in zip(flat.fetches, step.fetches, strict=True)
        if ":" not in op and op != after and op in originals
        if op not in made and op not in fetched
    }
    # Calls that were fetched as ops and opened: neither step has them, but their effects.
    opened = {op for op in fetches if op in originals and op not in flat.nodes} - fetched.keys()
    moved = _moved(originals, flat, made, {*fetched, *ended, *opened})
    scope = free_name(WHOLE_SCOPE, {name.partition("/")[0] for name in (*originals, *made)})
    whole_name = {name: f"{scope}/{name}" for name in originals if name in moved}
    result = type(graph_def)(versions=graph_def.versions, library=graph_def.library)
    for name, node in originals.items():
        own = result.node.add()
        own.CopyFrom(node)
        own.name = whole_name.get(name, name)
        redirect(own, whole_name)
        if name in whole_name and "frame_name" in own.attr:
            frame = own.attr["frame_name"]
            frame.s = f"{scope}/".encode() + frame.s
    result.node.extend(
        node for name, node in made.items() if name not in originals or name in moved
    )
    effects = [each for each in step.fetches if ":" not in each and each not in originals]
    for op, tensors in fetched.items():
        values = result.node.add(op="IdentityN", name=op)
        values.input.extend(tensor.removesuffix(":0") for tensor, _ in tensors)
        values.input.extend(f"^{effect}" for effect in effects)
        values.attr["T"].list.type.extend(dtype for _, dtype in tensors)
    for op, after in ended.items():
        result.node.add(op="NoOp", name=op, input=[f"^{after}"])
    for op in sorted(opened):
        result.node.add(op="NoOp", name=op, input=[f"^{effect}" for effect in effects])
    if not fetched and not opened:
        asked = {op_of(tensor) for tensor in outputs.values()}
        asked.update(each for each in step.fetches if ":" not in each and each in originals)
        _run_with(result, asked | ended.keys(), originals.keys() - moved, effects)
    known = {function.signature.name for function in result.library.function}
    result.library.function.extend(
        each for each in step.graph_def.library.function if each.signature.name not in known
    )
    return GraphWithBoth(result, whole_name)


def _fetched(
    step: SplitStep, outputs: Mapping[str, str], made: Nodes
) -> dict[str, list[tuple[str, int]]]:
    """{fetched op that the split step has not: [(tensor that is its output i, a dtype)]}."""
    nodes = {node.name: node for node in step.graph_def.node if node.name in outputs}
    fetched: dict[str, list[tuple[str, int]]] = {}
    for identity, tensor in outputs.items():
        op = op_of(tensor)
        if op not in made:
            node = nodes[identity]
            fetched.setdefault(op, []).append((with_index(node.input[0]), node.attr["T"].type))
    return fetched


def _run_with(
    graph_def: GraphDef, asked: Collection[str], shared: Collection[str], effects: Sequence[str]
) -> None:
    """Has a fetched op run the step's effects, unless it does so anyway; UsageError: none can."""
    nodes = {node.name: node for node in graph_def.node}

    def before(ops: Collection[str]) -> set[str]:
        return set(reached(ops, lambda name: map(op_of, nodes[name].input)))

    missing = sorted({*effects} - before(asked)) if effects else []
    if not missing:
        return
    free = sorted({*asked} - {*shared} - before(missing))
    if not free:
        raise UsageError(
            f"splitting the step: nothing that is fetched runs what it does besides "
            f"({missing[0]!r}); wanted a fetch that comes after it, or --shards=1"
        )
    nodes[free[0]].input.extend(f"^{effect}" for effect in missing)


def _moved(originals: Nodes, flat: FlatGraph, made: Nodes, fetched: Collection[str]) -> set[str]:
    """The ops of the unsplit step whose names the split one needs for something else.

    A loop of TensorFlow 1 moves as one, with the edges by which it goes round.
    """
    moved = set(fetched) & originals.keys()
    shared: dict[str, set[str]] = {}  # {op: what it reads, and the ops of its loop}
    loops: dict[str, set[str]] = defaultdict(set)
    for node, origin in zip(flat.graph_def.node, flat.origins, strict=True):
        name = node.name
        if name in originals and name in made:
            is_own = not origin.function and origin.node == name  # else of a call that was opened
            if not is_own or node.op == "ReadVariableOp" or _bare(made[name]) != _bare(node):
                moved.add(name)
            shared[name] = {op_of(each.removeprefix("^")) for each in node.input}
            if name in flat.unit_of_node:
                loops[flat.unit_of_node[name]].add(name)
    readers: dict[str, set[str]] = defaultdict(set)
    for name, reads in shared.items():
        for each in reads:
            readers[each].add(name)
    return set(
        reached(
            moved, lambda name: readers[name] | loops.get(flat.unit_of_node.get(name, ""), set())
        )
    )


def _bare(node: NodeDef) -> NodeDef:
    """The op without what only says what TensorFlow infers."""
    bare = copy.deepcopy(node)
    bare.attr.pop("_output_shapes", None)
    return bare


def redirect(node: NodeDef, whole_name: Mapping[str, str]) -> None:
    """Makes an op of the unsplit step, changed in place, read those that moved.

    Args:
      whole_name: {op: its name now}.
    """
    for i, name in enumerate(node.input):
        control, op = ("^", name[1:]) if name.startswith("^") else ("", op_of(name))
        if op in whole_name:
            node.input[i] = control + whole_name[op] + name[len(control) + len(op) :]
    rename_beside(node, whole_name)


_OUTPUT = "tfplace_output_"


def with_outputs(source: SourceModel) -> tuple[dict[str, str], SourceModel]:
    """The model with an Identity for each fetched tensor, which stays whole and keeps its name.

    Returns:
      {Identity op: the tensor that it stands for}, and the model that fetches them.
    """
    highest: dict[str, int] = {}
    for fetch in source.fetches:
        if ":" in fetch:
            op, _, index = with_index(fetch).rpartition(":")
            highest[op] = max(highest.get(op, 0), int(index))
    graph_def = copy.deepcopy(source.graph_def)
    outputs: dict[str, str] = {}
    nodes, library = {node.name: node for node in graph_def.node}, library_of(graph_def)
    call = signature_call(graph_def, source.fetches)
    if call is not None and source.saved_model_dir:  # a function returns all that it did
        highest.setdefault(call.name, 0)
    for op, most in highest.items():
        count = len(call.attr["Tout"].list.type) if call is not None else most + 1
        for number in range(count):
            name = free_name(f"{_OUTPUT}{len(outputs)}", nodes)
            identity = graph_def.node.add(op="Identity", name=name, input=[f"{op}:{number}"])
            identity.attr["T"].type = output_dtype(nodes[op], library, number)
            outputs[name] = f"{op}:{number}"
    fetches = [f"{name}:0" for name in outputs] + [f for f in source.fetches if ":" not in f]
    return outputs, dataclasses.replace(source, graph_def=graph_def, fetches=tuple(fetches))


def redirect_signatures(
    meta_graph: MetaGraphDef, name: str, whole_tensor: Callable[[str], str], adds_whole: bool
) -> None:
    """All signatures but the split one run the unsplit ops; one more runs the unsplit step.

    They feed these, too: an input may have a default value, and move with what that is read from.

    Args:
      meta_graph: changed in place.
      name: of the signature that is split.
      whole_tensor: from a tensor's name, or an op's, to that of the unsplit step.
      adds_whole: whether that is the split one's copy; else it is made elsewhere, if at all.
    """
    if adds_whole:
        whole = meta_graph.signature_def[whole_signature(name, meta_graph.signature_def)]
        whole.CopyFrom(meta_graph.signature_def[name])
    for key, signature in meta_graph.signature_def.items():
        if key != name:
            for info in (*signature.inputs.values(), *signature.outputs.values()):
                rename_tensors(info, whole_tensor)


def rename_tensors(info: TensorInfo, new_name: Callable[[str], str]) -> None:
    """Replaces a TensorInfo's names, in place: a tensor's, a sparse one's, or a composite's."""
    if info.WhichOneof("encoding") == "coo_sparse":
        for field, value in info.coo_sparse.ListFields():
            setattr(info.coo_sparse, field.name, new_name(value))
    elif info.WhichOneof("encoding") == "composite_tensor":
        for each in info.composite_tensor.components:
            rename_tensors(each, new_name)
    elif info.name:
        info.name = new_name(info.name)
