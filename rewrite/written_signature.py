"""Which signature is the run, in the model as it came and in the model that is written.

A SavedModel keeps its signatures. Of a graph's run one is made, beside those that a MetaGraphDef
has of its own; only where its name is the run's there already, that stays.
"""

from collections.abc import Container, Sequence

from graphs.function_library import called_function, library_of
from graphs.names import free_name, op_of, with_index
from graphs.protos import GraphDef, Message, NodeDef, ObjectGraph, Signatures
from graphs.source_model import SourceModel


def run_name(source: SourceModel) -> str:
    """The signature that the run is, or a name that none has; a call's outputs stand for all.

    Of several that give the same, it is the one that was asked for, or that is fed the same; of a
    graph, none but that.
    """
    fetches = {with_index(fetch) for fetch in source.fetches}
    outputs = {
        name: {with_index(spec.tensor) for spec in signature.outputs.values()}
        for name, signature in source.signatures.items()
    }
    found = [name for name, tensors in outputs.items() if tensors == fetches]
    call = signature_call(source.graph_def, source.fetches)
    if not found and call is not None and source.saved_model_dir:
        found = [n for n, t in outputs.items() if {op_of(tensor) for tensor in t} == {call.name}]
    feeds = {with_index(spec.tensor) for spec in source.feeds}

    def is_fed_the_same(name: str) -> bool:
        inputs = source.signatures[name].inputs.values()
        return {with_index(spec.tensor) for spec in inputs} == feeds

    def likely(name: str) -> tuple[bool, bool]:
        return source.step_origin == f"signature {name}", is_fed_the_same(name)

    if not source.saved_model_dir:
        found = [name for name in found if is_fed_the_same(name)]
    taken = {*source.signatures, *_own_signatures(source)}
    return max(found, key=likely, default=free_name(run_signature(source.mode), taken))


def written_name(source: SourceModel) -> str:
    """The run's signature in the model that is written, see `has_own`; else a free name."""
    if source.saved_model_dir or has_own(source):
        return run_name(source)
    return free_name(run_signature(source.mode), _own_signatures(source))


def whole_name(source: SourceModel) -> str:
    """The signature of the unsplit step in the model that is written; "" where it gets none."""
    if source.saved_model_dir and not has_own(source):
        return ""
    return whole_signature(written_name(source), _own_signatures(source))


def has_own(source: SourceModel) -> bool:
    """Whether the run's signature is written as the model has it; else one is made for a graph."""
    name, own = run_name(source), _own_signatures(source)
    if name not in own:
        return False
    if source.saved_model_dir:
        return True
    infos = (*own[name].inputs.values(), *own[name].outputs.values())
    return name == run_signature(source.mode) and all(info.name for info in infos)  # not sparse


def of_another_name(source: SourceModel) -> tuple[str, ...]:
    """The sentence that says what the run's signature is called where its name was taken."""
    wanted, name = run_signature(source.mode), written_name(source)
    if source.saved_model_dir or name == wanted:
        return ()
    return (f"the run is written as signature {name}: the model has another {wanted}",)


def signature_call(graph_def: GraphDef, fetches: Sequence[str]) -> NodeDef | None:
    """The main graph's call of a signature's function, if all fetches are its outputs."""
    calls = {op_of(fetch) for fetch in fetches}
    if len(calls) != 1:
        return None
    [name] = calls
    node = next((node for node in graph_def.node if node.name == name), None)
    is_call = node is not None and called_function(node, library_of(graph_def)) is not None
    return node if is_call else None


def signature_map(objects: ObjectGraph) -> Message | None:
    """What a SavedModel's root calls its signatures; a loaded model inside has a map of its own."""
    children = objects.nodes[0].children if objects.nodes else ()
    found = (objects.nodes[each.node_id] for each in children if each.local_name == "signatures")
    return next((n for n in found if n.user_object.identifier == "signature_map"), None)


def _own_signatures(source: SourceModel) -> Signatures:
    return {} if source.meta_graph_def is None else source.meta_graph_def.signature_def


_WHOLE_SUFFIX = "_whole"


def whole_signature(name: str, signatures: Container[str]) -> str:
    """The signature of a split step's unsplit one, NAME_whole, beside a model's own signatures."""
    return free_name(f"{name}{_WHOLE_SUFFIX}", signatures)


def run_signature(mode: str) -> str:
    """The name of the signature for a run in this mode, "train" or "inference"."""
    return "train_step" if mode == "train" else "serving_default"


def signature_key(tensor: str) -> str:
    """ "op" for its first output or the op itself, "op_1" for others."""
    op, _, index = tensor.partition(":")
    return op if index in ("", "0") else f"{op}_{index}"
