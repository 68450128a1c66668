"""Writes the values of a graph's variables to files, some of them after others.

A transformer of 110 million parameters has 1.3 GB of weights and moments. All of them at once in
the memory of the process that gives them their values would be a third of what the whole command
may take. Where each value hangs on nothing but constants and random numbers of its own, a
hundred MB of them are made, written and forgotten before the next. Imported by child processes
only: it is all TensorFlow.
"""

import dataclasses
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from graphs.graph_view import reached
from graphs.names import op_of
from graphs.protos import Graph, Operation, Session
from graphs.run_session import ASSIGN_SCOPE, checkpoint_keys
from graphs.source_model import Initialization, Variable

PIECE_BYTES = 1 << 27
"""Of values that are held at once; a larger variable is a piece of its own."""
_RANDOM = frozenset(
    {"RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"}
)
_FILES = "variables"
"""The folder in a SavedModel, and what the names of its files begin with."""


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Variables in groups, and what gives each its value."""

    variables: Sequence[Sequence[Variable]]  # the groups
    assign_of: Mapping[str, Operation]  # {variable's op: the AssignVariableOp}


def pieces_of(
    graph: Graph, initialization: Initialization, variables: Sequence[Variable]
) -> Pieces | None:
    """Groups variables; None where all may as well, or have to, get their values together.

    Values are the same in groups: no random op draws for two variables, and nothing else in the
    ops that are run has a state.

    Args:
      variables: all of the graph.
    """
    how = initialization
    if how.restore_op or how.random_variables or how.asset_feeds or not how.init_ops:
        return None
    if sum(map(_num_bytes, variables)) <= PIECE_BYTES:
        return None
    run = _ancestors(graph.get_operation_by_name(op_of(name)) for name in how.init_ops)
    assigns = [op for op in run if op.type == "AssignVariableOp"]
    assign_of = {op.inputs[0].op.name: op for op in assigns}
    if len(assign_of) < len(assigns) or assign_of.keys() != {each.op for each in variables}:
        return None
    left = {op for op in run if op.type != "NoOp"}
    drawn: set[Operation] = set()
    for assign in assigns:
        made_of = _ancestors([assign]) - {assign, assign.inputs[0].op}
        states = {op for op in made_of if op.op_def.is_stateful}
        if any(op.type not in _RANDOM for op in states) or states & drawn:
            return None
        drawn |= states
        left -= {assign, assign.inputs[0].op, *made_of}
    return None if left else Pieces(list(_grouped(variables)), assign_of)


def write_in_pieces(session: Session, pieces: Pieces, folder: Path) -> None:
    """Writes the files of a SavedModel's variables, which have no values afterwards.

    Args:
      session: with the graph of the pieces.
      folder: of the SavedModel.
    """
    keys = checkpoint_keys([each for piece in pieces.variables for each in piece])
    parts = [folder / _FILES / f"part_{number}" / _FILES for number in range(len(pieces.variables))]
    with session.graph.as_default(), session.graph.name_scope(ASSIGN_SCOPE):
        ops = [
            _ops(session.graph, piece, keys, part)
            for piece, part in zip(pieces.variables, parts, strict=True)
        ]
    for piece, part, (save, forget) in zip(pieces.variables, parts, ops, strict=True):
        part.parent.mkdir(parents=True)
        session.run([pieces.assign_of[each.op] for each in piece])
        session.run(save)
        session.run(forget)
    with tf.Graph().as_default(), tf.compat.v1.Session() as merging:
        merging.run(
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=[str(part) for part in parts],
                destination_prefix=str(folder / _FILES / _FILES),
                delete_old_dirs=False,
            )
        )
    for part in parts:
        shutil.rmtree(part.parent)


def _ops(
    graph: Graph, piece: Sequence[Variable], keys: Mapping[str, str], part: Path
) -> tuple[Operation, list[Operation]]:
    """What writes the values of a piece, and what forgets them."""
    handles = [graph.get_tensor_by_name(f"{each.op}:0") for each in piece]
    values = [
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(each.dtype))
        for handle, each in zip(handles, piece, strict=True)
    ]
    save = tf.raw_ops.SaveV2(
        prefix=str(part),
        tensor_names=[keys[each.op] for each in piece],
        shape_and_slices=[""] * len(piece),
        tensors=values,
    )
    return save, [tf.raw_ops.DestroyResourceOp(resource=handle) for handle in handles]


def _grouped(variables: Iterable[Variable]) -> Iterator[list[Variable]]:
    piece: list[Variable] = []
    for each in variables:
        if piece and sum(map(_num_bytes, [*piece, each])) > PIECE_BYTES:
            yield piece
            piece = []
        piece.append(each)
    if piece:
        yield piece


def _num_bytes(variable: Variable) -> int:
    size: int = tf.as_dtype(variable.dtype).size
    return math.prod(max(each, 1) for each in variable.shape) * size


def _ancestors(ops: Iterable[Operation]) -> set[Operation]:
    """Ops, and everything that they read or wait for."""
    return set(reached(ops, lambda op: [*op.control_inputs, *(t.op for t in op.inputs)]))
