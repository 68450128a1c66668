"""Gives the variables of a graph in a v1 session their values, reads and overwrites them.

Imported by child processes only: it is all TensorFlow.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.names import op_of, with_index
from graphs.protos import DType, Operation, Session, Tensor
from graphs.source_model import Initialization, Variable

ASSIGN_SCOPE = "tfplace_assign"
"""Where ops that only this module needs are put; they are no part of any model."""
_RANDOM_SCALE = 0.05


def initialize(
    session: Session, initialization: Initialization, variables: Sequence[Variable]
) -> None:
    """Runs the init ops, restores the checkpoint, and gives the others their starting values."""
    if initialization.init_ops:
        assets = {with_index(name): path for name, path in initialization.asset_feeds.items()}
        init_ops = [op_of(name) for name in initialization.init_ops]
        session.run([session.graph.get_operation_by_name(op) for op in init_ops], assets)
    if initialization.restore_op:
        prefix = {with_index(initialization.filename_tensor): initialization.checkpoint_prefix}
        restore_op = op_of(initialization.restore_op)
        session.run(session.graph.get_operation_by_name(restore_op), prefix)
    values = starting_values(initialization, {v.name: (v.dtype, v.shape) for v in variables})
    write_variables(session, {v.op: values[v.name] for v in variables if v.name in values})


def starting_values(
    initialization: Initialization, specs: Mapping[str, tuple[DType, Sequence[int]]], seed: int = 0
) -> dict[str, np.ndarray]:
    """{variable: value} of those that no op of the model gives one.

    What TensorFlow 2 saved is read from the checkpoint; what nothing initialises gets small
    values, the same in every variant of a graph.

    Args:
      specs: {name: (dtype, shape)} of the variables that are there.
    """
    values = {}
    saved = {name: key for name, key in initialization.saved_variables.items() if name in specs}
    if saved:
        checkpoint = tf.train.load_checkpoint(initialization.checkpoint_prefix)
        values = {name: np.asarray(checkpoint.get_tensor(key)) for name, key in saved.items()}
    for name in initialization.random_variables:
        if name in specs:  # else the run does not need it
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            values[name] = _random_value(*specs[name], rng)
    return values


def checkpoint_keys(variables: Iterable[Variable]) -> dict[str, str]:
    """{variable op: key under which emit saves it}: its name or, where that is taken, its op's."""
    keys: dict[str, str] = {}
    for variable in variables:
        keys[variable.op] = variable.op if variable.name in keys.values() else variable.name
    return keys


def _random_value(of_dtype: DType, of_shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    shape = tuple(max(size, 1) for size in of_shape)
    dtype = tf.as_dtype(of_dtype)
    if dtype == tf.string:
        return np.full(shape, b"", object)
    if dtype.is_floating or dtype.is_complex:
        return np.asarray(_RANDOM_SCALE * rng.standard_normal(shape)).astype(dtype.as_numpy_dtype)
    return np.zeros(shape, dtype.as_numpy_dtype)


def assigned(variable: Tensor, value: Tensor) -> Operation:
    """An op that gives a variable its value; `variable` is its resource or reference."""
    if variable.dtype == tf.resource:
        return tf.raw_ops.AssignVariableOp(resource=variable, value=value)
    return tf.raw_ops.Assign(ref=variable, value=value, validate_shape=False).op


def write_variables(session: Session, values: Mapping[str, object]) -> None:
    """Gives the variables of {variable op: value} their values."""
    feeds, assigns = {}, []
    with session.graph.as_default(), session.graph.name_scope(ASSIGN_SCOPE):
        for op, given in values.items():
            handle = session.graph.get_tensor_by_name(f"{op}:0")
            value = tf.compat.v1.placeholder(handle.op.get_attr("dtype"))
            feeds[value] = given
            # Beside the variable, wherever that is: it may be on another task.
            with session.graph.colocate_with(handle.op):
                assigns.append(assigned(handle, value))
    if assigns:
        session.run(assigns, feeds)


def read_variables(session: Session, ops: Iterable[str]) -> dict[str, np.ndarray]:
    """{variable op: value}; tf.errors.FailedPreconditionError: one has no value yet."""
    reads = {}
    with session.graph.as_default(), session.graph.name_scope(ASSIGN_SCOPE):
        for op in ops:
            handle = session.graph.get_tensor_by_name(f"{op}:0")
            with session.graph.colocate_with(handle.op):
                reads[op] = (
                    tf.raw_ops.ReadVariableOp(resource=handle, dtype=handle.op.get_attr("dtype"))
                    if handle.dtype == tf.resource
                    else tf.raw_ops.Identity(input=handle)
                )
    return session.run(reads) if reads else {}
