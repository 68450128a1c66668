"""Writes a model that holds both steps, the split one as its run and the unsplit one beside it."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence

from graphs import op_types
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.function_library import called_function, library_of, rename_references
from graphs.loading.feed_shapes import write_shapes
from graphs.loading.saved_model_file import read_signatures
from graphs.names import beside, data_inputs, free_name, op_of, parse_input, with_index
from graphs.protos import FunctionDef, GraphDef, MetaGraphDef, NodeDef, shape_proto
from graphs.source_model import SourceModel, TensorSpec
from rewrite import written_signature
from rewrite.emit import saved_with
from rewrite.split.functions import as_body
from rewrite.split.split_step import SplitStep
from rewrite.split.write.split_graph import redirect, redirect_signatures, split_beside
from rewrite.split.write.weights import WholeFirst


def written(
    source: SourceModel, own: GraphDef, flat: FlatGraph, step: SplitStep, outputs: Mapping[str, str]
) -> SourceModel:
    """The model with both steps.

    Args:
      source: the model as it came.
      own: its main graph.
      outputs: {Identity op of both steps: the fetched tensor that it stands for}.
    """
    name = written_signature.run_name(source)
    call, start = written_signature.signature_call(own, source.fetches), source.initialization
    meta_graph = copy.deepcopy(source.meta_graph_def)
    whole: Sequence[str] = ()
    if call is not None and source.saved_model_dir and name in source.signatures:
        function = write_split_signature(meta_graph, name, call, step)
        graph_def = meta_graph.graph_def
        if step.pieces:
            WholeFirst(graph_def, step).in_functions(meta_graph, function)
    else:
        both = split_beside(own, flat, step, outputs, source.fetches)
        graph_def = both.graph_def
        if step.pieces:
            restore = "" if meta_graph is None else meta_graph.saver_def.restore_op_name
            others = WholeFirst(graph_def, step)
            others.in_main_graph([*start.init_ops, start.restore_op, restore])
            if meta_graph is not None:
                others.in_functions(meta_graph, "")
        whole = [both.whole_tensor(fetch) for fetch in source.fetches]
        if meta_graph is not None:
            meta_graph.graph_def.CopyFrom(graph_def)
            # Where a signature is made of the run, `build_saved_model` makes that one, too.
            redirect_signatures(
                meta_graph, name, both.whole_tensor, written_signature.has_own(source)
            )
    pieces = [name for variable, _ in step.pieces.values() for name in variable.names]
    split = dataclasses.replace(
        source,
        graph_def=_with_shapes(graph_def, source.feeds),
        meta_graph_def=meta_graph,
        split_graph=None if source.saved_model_dir else graph_def,
        whole_fetches=tuple(whole),
        signatures=source.signatures if meta_graph is None else read_signatures(meta_graph),
        initialization=dataclasses.replace(
            start, random_variables=[*start.random_variables, *pieces]
        ),
    )
    if not source.saved_model_dir:
        return split
    return dataclasses.replace(split, saved_model_dir=saved_with(source, meta_graph))


def _with_shapes(graph_def: GraphDef, feeds: Sequence[TensorSpec]) -> GraphDef:
    """The graph itself where its placeholders say the fed shapes already: it may be large."""
    shape_of = {op_of(spec.tensor): spec.shape for spec in feeds if spec.shape is not None}
    fed = [n for n in graph_def.node if n.name in shape_of and n.op in op_types.PLACEHOLDERS]
    says = (
        "_output_shapes" not in node.attr
        and "shape" in node.attr
        and node.attr["shape"].shape == shape_proto(shape_of[node.name])
        for node in fed
    )
    return graph_def if all(says) else write_shapes(graph_def, feeds)


def write_split_signature(
    meta_graph: MetaGraphDef, name: str, call: NodeDef, step: SplitStep
) -> str:
    """Makes the signature's function the split step; the unsplit one stays beside it; returns it.

    Args:
      meta_graph: the MetaGraphDef, changed in place.
      call: the op of the main graph that calls the signature's function.
      step: its fetches are the function's outputs in their order, then ops.
    """
    library = library_of(meta_graph.graph_def)
    function_name = called_function(call, library)
    assert function_name is not None
    function = library[function_name]
    whole = copy.deepcopy(function)
    whole.signature.name = _whole_function(function_name, library)
    argument_of = _argument_of(call, function)
    known = {each.signature.name for each in meta_graph.graph_def.library.function}
    meta_graph.graph_def.library.function.extend(
        each for each in step.graph_def.library.function if each.signature.name not in known
    )
    meta_graph.graph_def.library.function.append(whole)
    _have_others_call(meta_graph.graph_def, call.name, {function_name: whole.signature.name})
    _write_body(function, call.name, argument_of, step, library_of(meta_graph.graph_def))
    added = written_signature.whole_signature(name, meta_graph.signature_def)
    _add_whole_call(meta_graph, name, call, whole.signature.name, added)
    if meta_graph.HasField("object_graph_def"):
        # An object beside that of the split step, so that TensorFlow 2 loads it.
        objects, whole_name = meta_graph.object_graph_def, whole.signature.name
        objects.concrete_functions[whole_name].CopyFrom(objects.concrete_functions[function_name])
        signatures = written_signature.signature_map(objects)
        if signatures is not None:
            [child] = [each for each in signatures.children if each.local_name == name]
            own = objects.nodes.add()
            own.CopyFrom(objects.nodes[child.node_id])
            own.bare_concrete_function.concrete_function_name = whole_name
            signatures.children.add(node_id=len(objects.nodes) - 1, local_name=added)
    return function_name


def _whole_function(function: str, library: FunctionDef) -> str:
    """A free name; TensorFlow wants the number at the end of a function's name to stay there."""
    stem, _, number = function.rpartition("_")
    name = f"{stem}_whole_{number}"
    while name in library:
        stem += "_"
        name = f"{stem}_whole_{number}"
    return name


def _have_others_call(graph_def: GraphDef, call: str, new_names: Mapping[str, str]) -> None:
    """Has all but one call of a function run the unsplit step: another signature's, a loop's."""
    for node in graph_def.node:
        if node.name != call:
            rename_references(node, new_names)
    for function in graph_def.library.function:
        for node in function.node_def:
            rename_references(node, new_names)


def _argument_of(call: NodeDef, function: FunctionDef) -> dict[str, str]:
    """{op of the main graph that the call reads: the function's argument}."""
    arguments: dict[str, str] = {}
    for source, argument in zip(data_inputs(call), function.signature.input_arg, strict=True):
        if parse_input(source).output != 0:
            raise ModelError(
                f"splitting the function of {call.name!r}: it reads {source!r}, the second output "
                "of an op outside of it; wanted a SavedModel as TensorFlow writes it; leave "
                "--shards out"
            )
        arguments.setdefault(op_of(source), argument.name)
    return arguments


def _write_body(
    function: FunctionDef,
    call: str,
    argument_of: dict[str, str],
    step: SplitStep,
    library: FunctionDef,
) -> None:
    """Puts the step's ops into the function; they lose the call's name before their own."""
    tensors = [fetch for fetch in step.fetches if ":" in fetch]
    ops = [fetch for fetch in step.fetches if ":" not in fetch]
    read_by = {node.name: node.input[0] for node in step.graph_def.node if node.input}
    outputs = {op_of(fetch): with_index(read_by[op_of(fetch)]) for fetch in tensors}
    inside = copy.deepcopy(step.graph_def)
    kept = [node for node in inside.node if node.name not in outputs]
    del inside.node[:]
    inside.node.extend(kept)
    short = _short_names(call, [node.name for node in kept if node.name not in argument_of])
    wanted = [outputs[op_of(fetch)] for fetch in tensors]
    nodes, returned = as_body(inside, argument_of, wanted, library)
    arguments = set(argument_of.values())
    for node in nodes:
        _rename(node, short, arguments)
    del function.node_def[:]
    function.node_def.extend(nodes)
    rets = [each.name for each in function.signature.output_arg]
    function.ret.clear()
    for ret, name in zip(rets, returned, strict=True):
        function.ret[ret] = _renamed(name, short, arguments)
    function.control_ret.clear()
    del function.signature.control_output[:]
    for op in ops:
        function.signature.control_output.append(short[op])
        function.control_ret[short[op]] = short[op]


def _short_names(call: str, names: Sequence[str]) -> dict[str, str]:
    """{op: its name in the function}: without the call's, or its own where it has none."""
    short = {name: name.removeprefix(f"{call}/") for name in names if name.startswith(f"{call}/")}
    taken = set(short.values())
    for name in names:
        if name not in short:
            short[name] = free_name(name, taken)
            taken.add(short[name])
    return short


def _rename(node: NodeDef, short: dict[str, str], arguments: set[str]) -> None:
    node.name = short[node.name]
    node.input[:] = [_renamed(name, short, arguments) for name in node.input]
    places = beside(node)
    node.attr.pop("_class", None)
    for place in places:
        if place in short:  # an argument lies where its caller put it
            node.attr["_class"].list.s.append(f"loc:@{short[place]}".encode())


def _renamed(name: str, short: dict[str, str], arguments: set[str]) -> str:
    """An input of a function's op where its ops have other names."""
    if name.startswith("^"):
        return f"^{short[name[1:]]}"
    op, _, rest = name.partition(":")
    return name if name in arguments else f"{short[op]}:{rest}"


def _add_whole_call(
    meta_graph: MetaGraphDef, name: str, call: NodeDef, function: str, added: str
) -> None:
    """Calls the unsplit step from the main graph: all but the run's signature read that call."""
    taken = {node.name for node in meta_graph.graph_def.node}
    own = copy.deepcopy(next(n for n in meta_graph.graph_def.node if n.name == call.name))
    own.name = free_name(f"{added}_call", taken)
    if "f" in own.attr:
        own.attr["f"].func.name = function
    else:
        own.op = function
    for node in meta_graph.graph_def.node:
        redirect(node, {call.name: own.name})
    meta_graph.graph_def.node.append(own)

    def whole_tensor(tensor: str) -> str:
        return own.name + tensor.removeprefix(call.name) if op_of(tensor) == call.name else tensor

    redirect_signatures(meta_graph, name, whole_tensor, adds_whole=True)
