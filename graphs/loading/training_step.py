"""Makes a training step for a model that came without one.

loss = sum over float outputs y of mean(y^2);  w <- w - 0.01 * dloss/dw for every trainable w.
The loss means nothing, but the step has the ops, shapes and dependencies of real training, and
these are what a placement is about. Function calls are opened first, because TensorFlow
differentiates ops of one graph and because gradients of a call could not be placed op by op.
"""

import copy
import dataclasses
from collections.abc import Sequence

import graphs.late_tensorflow as tf
from graphs.building.flatten import flatten
from graphs.building.never_evaluated import never_evaluated, restore_evaluated
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.function_library import add_functions, bodies
from graphs.protos import Graph, GraphDef, Operation, Tensor
from graphs.source_model import SourceModel, Variable

LEARNING_RATE = 0.01
SCOPE = "train_step"
_CUSTOM_GRADIENT = "_gradient_op_type"
_FLOATS = ("float16", "bfloat16", "float32", "float64")


class _NoStepError(Exception):
    """No training step can be made; the message says why, to follow "because"."""


def with_training_step(model: SourceModel) -> SourceModel:
    """The model with a training step made from what its run fetches.

    The run graph keeps every op of the model. It gets the opened forward ops, named by their call
    path, and the step's own ops; `origins` says where the forward ops stand in the model.

    Args:
      model: its run computes outputs; it is left as it is.

    Raises:
      ModelError: no step can be made.
    """
    try:
        flat = flatten(model.graph_def, model.feeds, model.fetches, open_conditionals=False)
        trained = [
            v for v in model.variables if v.trainable and v.dtype in _FLOATS and v.op in flat.nodes
        ]
        if not trained:
            raise _NoStepError("its run reads no trainable variable")
        differentiated, fetches, num_updated = _differentiated(flat, trained)
    except _NoStepError as error:
        raise ModelError(
            f"making a training step for {model.path!r} from {model.step_origin}: {error}; "
            "name the training op with --fetch, or use --mode=inference"
        ) from error
    origin = (
        f"a training step made from {num_updated} trainable variables: gradient descent on the "
        f"mean squares of the float outputs of {model.step_origin}"
    )
    return dataclasses.replace(
        model,
        graph_def=_merged(model.graph_def, differentiated),
        fetches=(*fetches, *[fetch for fetch in flat.fetches if ":" not in fetch]),
        mode="train",
        step_origin=origin,
        guessed=(*model.guessed, f"the model has no training step; the run is {origin}"),
        origins=dict(zip((node.name for node in flat.graph_def.node), flat.origins, strict=True)),
    )


def _differentiated(
    flat: FlatGraph, trained: Sequence[Variable]
) -> tuple[GraphDef, tuple[str, ...], int]:
    """The graph with a step's ops, its fetches, and how many variables it updates."""
    graph, given = tf.Graph(), copy.deepcopy(flat.graph_def)
    # Custom gradients are Python of the process that built the model: tf.custom_gradient registers
    # a function under a numbered name, and what has that number here, if anything, belongs to
    # another graph. Without it the marked IdentityN passes gradients on to the ops that computed
    # the value, and the same function is differentiated op by op.
    for node in (node for _, nodes in bodies(given) for node in nodes):
        node.attr.pop(_CUSTOM_GRADIENT, None)
    try:
        with graph.as_default():
            tf.compat.v1.import_graph_def(never_evaluated(given), name="")
            with tf.name_scope(SCOPE):
                loss = _loss(graph, flat.fetches)
                handles = [graph.get_tensor_by_name(f"{v.op}:0") for v in trained]
                gradients = tf.compat.v1.gradients(loss, handles)
                updates = [
                    _update(handle, gradient)
                    for handle, gradient in zip(handles, gradients, strict=True)
                    if gradient is not None
                ]
                if not updates:
                    raise _NoStepError("no float output depends on a trainable variable")
                step = tf.group(*updates, name="update")
            made = graph.as_graph_def()
            restore_evaluated(made, given)
            return made, (loss.name, step.name), len(updates)
    except _NoStepError:
        raise
    except Exception as error:  # each op's gradient is Python of its own, and raises what it likes
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _NoStepError(f"TensorFlow can't differentiate it ({first_line[:300]})") from error


def _loss(graph: Graph, fetches: Sequence[str]) -> Tensor:
    """The sum of the mean squares of the fetched float outputs, scalar f4."""
    squares = [
        tf.reduce_mean(tf.square(tf.cast(output, tf.float32)))
        for output in [graph.get_tensor_by_name(fetch) for fetch in fetches if ":" in fetch]
        if output.dtype.is_floating
    ]
    if not squares:
        raise _NoStepError("it has no float output")
    return tf.add_n(squares, name="loss")


def _update(handle: Tensor, gradient: Tensor) -> Operation:
    """The op that subtracts LEARNING_RATE * gradient from a variable, or from rows of a table."""
    is_resource = handle.dtype == tf.resource
    rate = tf.constant(LEARNING_RATE, gradient.dtype.base_dtype)
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * rate
        if is_resource:
            return tf.raw_ops.ResourceScatterSub(
                resource=handle, indices=gradient.indices, updates=values
            )
        return tf.raw_ops.ScatterSub(
            ref=handle, indices=gradient.indices, updates=values, use_locking=True
        ).op
    if is_resource:
        return tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=rate, delta=gradient)
    return tf.raw_ops.ApplyGradientDescent(var=handle, alpha=rate, delta=gradient).op


def _merged(original: GraphDef, step: GraphDef) -> GraphDef:
    """The original's ops, those that the step has too taken from the step, and both libraries."""
    result = type(original)()
    result.versions.CopyFrom(original.versions)
    in_step = {node.name for node in step.node}
    result.node.extend(node for node in original.node if node.name not in in_step)
    result.node.extend(step.node)
    result.library.CopyFrom(original.library)
    add_functions(result, step)
    return result
