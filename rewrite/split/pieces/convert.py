"""The functions that put weights into pieces, and make them whole again.

A weight in pieces is a variable for each piece beside the variable that the model has. One of the
two is empty: whichever is not holds the values. So no step can go on with values that are older
than others, and whoever reads the empty variable finds that its shape is wrong. The split step
begins by putting into pieces what is whole, as after loading or after a checkpoint was restored;
whatever else reads the weight makes it whole first.
"""

import copy
import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import graphs.late_tensorflow as tf
from graphs.function_library import (
    CONVERTS_WEIGHTS,
    library_of,
    reached_functions,
    rename_references,
)
from graphs.names import data_inputs, free_name, op_of
from graphs.protos import DType, FunctionDef, GraphDef, NodeDef, Nodes, Operation, Tensor, shape_of
from rewrite.pass_base import RewriteError
from rewrite.split.cut_variable import CutVariable
from rewrite.split.decide.decide import Decisions
from rewrite.split.node_writer import NodeWriter
from rewrite.split.states import Sharded

PIECES = "tfplace/"
"""What the shared names of pieces begin with."""
INTO_PIECES, MAKE_WHOLE = "tfplace_into_pieces", "tfplace_make_whole"


def have_in_pieces(
    writer: NodeWriter,
    decisions: Decisions,
    copies: Mapping[str, Sequence[str]],
    taken: Collection[str],
) -> dict[str, tuple[CutVariable, Sequence[str]]]:
    """Has what reads or changes pieces of variables wait until they are there.

    Returns what a SplitStep says of them; its ops, with these `copies`, are in the writer.
    """
    nodes = {node.name: node for node in writer.graph_def.node}
    names = [
        nodes[name].attr["shared_name"].s.decode()
        for handle in decisions.pieces
        for name in copies[handle]
    ]
    variables = _variables(nodes, decisions.pieces, names)
    functions = into_pieces(variables, taken)
    pieces = {name for handle in decisions.pieces for name in copies[handle]}
    ready = writer.free_name("split/weights_in_pieces")
    for node in nodes.values():
        if any(op_of(name) in pieces for name in data_inputs(node)):
            node.input.append(f"^{ready}")
    writer.origin = next(iter(decisions.pieces))
    call = writer.node("StatefulPartitionedCall", ready, [*decisions.pieces])
    as_call(call, functions[0], names)
    writer.graph_def.library.function.extend(functions)
    pairs = zip(decisions.pieces, variables, strict=True)
    return {handle: (variable, copies[handle]) for handle, variable in pairs}


def filled_as_given(graph_def: GraphDef) -> GraphDef:
    """A new graph of a split step whose pieces nothing fills: they are variables like others."""
    [call] = [node for node in graph_def.node if CONVERTS_WEIGHTS in node.attr]
    result = type(graph_def)(library=graph_def.library, versions=graph_def.versions)
    result.node.extend(node for node in graph_def.node if node.name != call.name)
    for node in result.node:
        node.input[:] = [name for name in node.input if name != f"^{call.name}"]
    return result


def without_conversion(graph_def: GraphDef, pieces: Mapping[str, Sharded]) -> GraphDef:
    """A split step's graph without the functions that put weights into pieces, as a new one.

    Raises:
      RewriteError: they are others.
    """
    nodes = {node.name: node for node in graph_def.node}
    calls = [node for node in graph_def.node if CONVERTS_WEIGHTS in node.attr]
    library = library_of(graph_def)
    if len(calls) != 1 or calls[0].attr["f"].func.name not in library:
        raise RewriteError("reading a split step: nothing puts its weights into pieces")
    own = [name.decode() for name in calls[0].attr[CONVERTS_WEIGHTS].list.s]
    main = library[calls[0].attr["f"].func.name]
    found = [main, *(library[each] for each in reached_functions(main.node_def, library))]
    made = into_pieces(_variables(nodes, pieces, own), ())
    names = [function.signature.name for function in found]
    new = {own.signature.name: name for own, name in zip(made, names, strict=False)}
    for function in made:
        _rename(function, new)
    if made != found:
        raise RewriteError("reading a split step: its weights are put into pieces otherwise")
    rest = type(graph_def)(node=graph_def.node, versions=graph_def.versions)
    rest.library.gradient.extend(graph_def.library.gradient)
    others = (f for f in graph_def.library.function if f.signature.name not in names)
    rest.library.function.extend(others)
    return rest


def _rename(function: FunctionDef, new: Mapping[str, str]) -> None:
    function.signature.name = new.get(function.signature.name, "")
    for node in function.node_def:
        rename_references(node, new)


def _variables(
    nodes: Nodes, pieces: Mapping[str, Sharded], names: Sequence[str]
) -> list[CutVariable]:
    """The variables of VarHandleOps: `names` are the shared names of all pieces, in order."""
    count = len(names) // len(pieces)
    return [
        CutVariable(
            nodes[handle].attr["dtype"].type, shape_of(nodes[handle].attr["shape"].shape) or (),
            state, tuple(names[number * count : (number + 1) * count]),
        )
        for number, (handle, state) in enumerate(pieces.items())
    ]  # fmt: skip


def as_call(call: NodeDef, function: FunctionDef, names: Sequence[str]) -> None:
    """Has a StatefulPartitionedCall run one of the functions; `names` as of the pieces."""
    call.attr["f"].func.name = function.signature.name
    call.attr["Tin"].list.type.extend(each.type for each in function.signature.input_arg)
    call.attr["Tout"].list.SetInParent()
    call.attr[CONVERTS_WEIGHTS].list.s.extend(name.encode() for name in names)


def into_pieces(variables: Sequence[CutVariable], taken: Collection[str]) -> list[FunctionDef]:
    """The function, and those that it calls; it takes each variable's handle.

    Args:
      variables: in the order of its arguments.
      taken: names of functions that these don't take.
    """
    return _traced(variables, _cut, INTO_PIECES, taken)


def make_whole(variables: Sequence[CutVariable], taken: Collection[str]) -> list[FunctionDef]:
    """The function that makes them whole again, likewise."""
    return _traced(variables, _join, MAKE_WHOLE, taken)


def _cut(variable: CutVariable, own: Tensor) -> Tensor:
    import tensorflow.experimental.numpy as tnp

    return _moved([own], _pieces(variable), variable.cut(_read(own, variable.dtype), tnp))


def _join(variable: CutVariable, own: Tensor) -> Tensor:
    import tensorflow.experimental.numpy as tnp

    pieces = _pieces(variable)
    whole = variable.joined([_read(handle, variable.dtype) for handle in pieces], tnp)
    return _moved(pieces, [own], [whole])


def _pieces(variable: CutVariable) -> list[Tensor]:
    """The pieces' handles, made where they are needed: a step that needs none sends nothing."""
    known = {"dtype": variable.dtype, "shape": variable.part_shape}
    return [tf.raw_ops.VarHandleOp(shared_name=name, **known) for name in variable.names]


def _moved(before: Sequence[Tensor], after: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
    """Gives variables values that others had, and takes them from these: nothing is ever lost."""
    with tf.control_dependencies([_assign(h, v) for h, v in zip(after, values, strict=True)]):
        for handle in before:
            # TensorFlow must not know the shape: it is not the variable's.
            empty = tf.zeros([0], values[0].dtype)
            _assign(handle, tf.raw_ops.PlaceholderWithDefault(input=empty, shape=None))
    return tf.constant(True)


def _traced(
    variables: Sequence[CutVariable],
    act: Callable[[CutVariable, Tensor], Tensor],
    name: str,
    taken: Collection[str],
) -> list[FunctionDef]:
    def body(*handles: Tensor) -> None:
        is_whole = [tf.reduce_prod(tf.raw_ops.VariableShape(input=own)) > 0 for own in handles]
        is_wanted = is_whole if act is _cut else [tf.logical_not(each) for each in is_whole]

        def each() -> Tensor:
            triples = zip(variables, handles, is_wanted, strict=True)
            return tf.stack(
                [tf.cond(w, functools.partial(act, v, own), _nothing) for v, own, w in triples]
            )

        tf.cond(tf.reduce_any(is_wanted), each, lambda: tf.fill([len(variables)], False))

    specs = [tf.TensorSpec([], tf.resource)] * len(variables)
    with tf.Graph().as_default():  # eagerly TensorFlow would keep the function for good
        made = tf.function(body, input_signature=specs, autograph=False).get_concrete_function()
    library, main = library_of(made.graph.as_graph_def()), made.function_def
    functions = [main, *(library[each] for each in reached_functions(main.node_def, library))]
    names, new = {*taken}, dict[str, str]()
    for function in functions:
        names.add(new.setdefault(function.signature.name, free_name(name, names)))
    result = []
    for function in functions:
        own = copy.deepcopy(function)
        _rename(own, new)
        result.append(own)
    return result


def _nothing() -> Tensor:
    return tf.constant(False)


def _read(handle: Tensor, dtype: DType) -> Tensor:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def _assign(handle: Tensor, value: Tensor) -> Operation:
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value)
