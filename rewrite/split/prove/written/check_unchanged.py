"""Proves that all but the run of a model with a split step is the model as it came.

Its other signatures, the unsplit step, and what gives variables their values are read from their
ends backwards, side by side in both graphs: the same ops, maybe by other names, that read the
same. What is fed has to be the same, too.
"""

import copy
from collections.abc import Mapping, Sequence

from graphs.building.op_outputs import op_definition
from graphs.function_library import called_function, library_of, rename_references
from graphs.loading.saved_model_file import main_ops
from graphs.names import op_of
from graphs.protos import GraphDef, Library, NodeDef, ObjectGraph, SignatureDef, Signatures
from graphs.source_model import SourceModel
from rewrite import written_signature
from rewrite.compare_graphs import same_content, same_message
from rewrite.model_builder import own_graph
from rewrite.pass_base import RewriteError
from rewrite.split.prove.written.prove_written import OneToOne, PairedGraphs
from rewrite.split.write.split_graph import rename_tensors
from rewrite.split.write.weights import without_pieces

_BESIDE = frozenset({"_class", "_output_shapes", "frame_name"})
"""Attributes that say nothing of what is computed, or are compared otherwise."""


def prove_others(given: SourceModel, split: SourceModel) -> None:
    """Compares all but the run of a model that holds a split step with the model as it came.

    Raises:
      RewriteError: another signature, the unsplit step or an initialiser is something else.
    """
    own, there = own_graph(given), without_pieces(own_graph(split))
    before, after = given.meta_graph_def, split.meta_graph_def
    name, added, functions = written_signature.run_name(given), "", {}
    if written_signature.has_own(given):
        added = written_signature.whole_signature(name, before.signature_def)
    if added and given.saved_model_dir:
        functions = _other_function(own, there, given.fetches, after.signature_def, added)
    paired = _paired(own, there, functions)
    start = given.initialization
    ends = [*start.init_ops, start.restore_op, start.filename_tensor]
    paired.pair("comparing what gives variables their values", ends, ends)
    if not given.saved_model_dir:
        fed = [spec.tensor for spec in given.feeds]
        its = [*fed, *split.whole_fetches]
        paired.pair("comparing the unsplit step", [*fed, *given.fetches], its)
    if before is None:
        return
    others = "graph_def", "signature_def", "object_graph_def"
    same_message("MetaGraphDefs", before, after, without=others)
    saver = before.saver_def
    ends = [*main_ops(before), saver.save_tensor_name, saver.restore_op_name]
    paired.pair("comparing the saver", ends, ends)
    _same_signatures(paired, before.signature_def, after.signature_def, name, added)
    if before.HasField("object_graph_def"):
        _same_objects(before.object_graph_def, after.object_graph_def, name, added, functions)


def _other_function(
    own: GraphDef, there: GraphDef, fetches: Sequence[str], signatures: Signatures, added: str
) -> dict[str, str]:
    """{function that the run calls: the unsplit one, which all others call}, if it calls one."""
    call = written_signature.signature_call(own, fetches)
    if call is None:
        return {}
    function = called_function(call, library_of(own))
    calls = {op_of(info.name) for info in signatures[added].outputs.values()}
    library = library_of(there)
    called = {called_function(node, library) for node in there.node if node.name in calls}
    if len(called) != 1 or not called <= library.keys() or function in called:
        raise RewriteError(f"comparing signature {added!r}: it doesn't call the unsplit step")
    return {str(function): str(called.pop())}


def _same_signatures(
    paired: PairedGraphs, before: Signatures, after: Signatures, name: str, added: str
) -> None:
    """All signatures but the run's are made of the same; the run's has the same ends."""
    known = {*before, *filter(None, [added])}
    if {*after} != known:
        raise RewriteError(f"comparing signatures: found {sorted(after)}, wanted {sorted(known)}")
    if name in before:
        same_message(f"signature {name!r}", before[name], after[name])
    for key in before:
        its = added if key == name else key
        if not its:
            continue
        what = f"signature {its!r}"
        one, other = _Ends(before[key]), _Ends(after[its])
        same_message(what, one.bare, other.bare)
        paired.pair(f"comparing {what}", one.names, other.names)


class _Ends:
    """A signature taken apart.

    Attributes:
      names: of its tensors, those of inputs first.
      bare: all else that it says.
    """

    def __init__(self, signature: SignatureDef) -> None:
        self.names: list[str] = []
        self.bare = copy.deepcopy(signature)
        for infos in (self.bare.inputs, self.bare.outputs):
            for key in sorted(infos):
                rename_tensors(infos[key], self._taken)

    def _taken(self, name: str) -> str:
        self.names.append(name)
        return "a tensor"


def _same_objects(
    before: ObjectGraph, after: ObjectGraph, name: str, added: str, functions: Mapping[str, str]
) -> None:
    """Compares what TensorFlow 2 loads: the unsplit step is one signature more."""
    wanted = copy.deepcopy(before)
    for own, whole in functions.items():
        wanted.concrete_functions[whole].CopyFrom(before.concrete_functions[own])
        signatures = written_signature.signature_map(wanted)
        if signatures is not None:
            callers = [c for c in signatures.children if _function(wanted, c.node_id) == own]
            if [child.local_name for child in callers] != [name]:
                raise RewriteError(f"comparing objects: it isn't {name!r} alone that is split")
            more = wanted.nodes.add()
            more.CopyFrom(wanted.nodes[callers[0].node_id])
            more.bare_concrete_function.concrete_function_name = whole
            signatures.children.add(node_id=len(wanted.nodes) - 1, local_name=added)
    same_message("objects", wanted, after)


def _function(objects: ObjectGraph, node_id: int) -> str:
    return str(objects.nodes[node_id].bare_concrete_function.concrete_function_name)


def _paired(given: GraphDef, written: GraphDef, functions: Mapping[str, str]) -> PairedGraphs:
    """Both graphs, to be read from some ends; all functions have been compared."""
    library, frames = library_of(given), OneToOne()
    _require_functions(library, library_of(written), functions)

    def is_same(node: NodeDef, other: NodeDef) -> bool:
        return (
            _is_same(node, other, functions)
            and frames.fits(_text(node, "frame_name"), _text(other, "frame_name"))
            and (node.name == other.name or not _has_state_of_its_name(node, library))
        )

    graphs = [{node.name: node for node in graph.node} for graph in (given, written)]
    return PairedGraphs(graphs[0], graphs[1], is_same)


def _has_state_of_its_name(node: NodeDef, library: Library) -> bool:
    """Whether it would hold another state by another name: a variable, a table, a queue."""
    if node.op in library or _text(node, "shared_name"):
        return False
    return any(each.name == "shared_name" for each in op_definition(node.op, node.name).attr)


def _text(node: NodeDef, key: str) -> bytes:
    return bytes(node.attr[key].s) if key in node.attr else b""  # asking alone would add it


def _is_same(node: NodeDef, other: NodeDef, functions: Mapping[str, str]) -> bool:
    """Whether nodes do the same with what they read."""
    if _is_same_but_for_calls(node, other):
        return True
    own = copy.deepcopy(node)
    return rename_references(own, functions) and _is_same_but_for_calls(own, other)


def _is_same_but_for_calls(node: NodeDef, other: NodeDef) -> bool:
    keys = [{*each.attr} - _BESIDE for each in (node, other)]
    return (
        node.op == other.op
        and keys[0] == keys[1]
        and all(same_content(node.attr[key], other.attr[key]) for key in keys[0])
    )


def _require_functions(given: Library, written: Library, functions: Mapping[str, str]) -> None:
    """All functions are there; what called the one that is split calls the unsplit one."""
    for name, function in given.items():
        there = functions.get(name, name)
        wanted = copy.deepcopy(function)
        wanted.signature.name = there
        for node in wanted.node_def:
            rename_references(node, functions)
        if there not in written or not same_content(wanted, written[there]):
            raise RewriteError(f"comparing functions: {there!r} is another one, or gone")
