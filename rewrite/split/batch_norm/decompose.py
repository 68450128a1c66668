"""Takes batch normalisation in training apart, so that its statistics stay those of the batch.

Only where its images would be sharded; a forward op and its gradients together, or none of them,
since the gradient reads what the fused forward op left for it.
"""

import copy
import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import graphs.late_tensorflow as tf
from graphs.building.op_outputs import attr_of
from graphs.building.shapes import TensorProperties, num_elements
from graphs.flat_graph import FlatGraph
from graphs.names import data_inputs, free_name, op_of, tensor_of
from graphs.protos import NodeDef, Tensor
from rewrite.split.decide.decide import decide
from rewrite.split.decision import GRADIENTS, NORMS
from rewrite.split.float64.convert import Attributes, attributes, traced
from rewrite.split.reading.runs_before import with_nodes
from rewrite.split.rules.batch_norm import is_across, norm, norm_gradient
from rewrite.split.rules.table import RULES, Rule

_PASSING = frozenset({"Identity", "IdentityN"})
_RESERVED = frozenset({3, 4, 5})
Users = Mapping[str, Sequence[tuple[str, int]]]
"""{"op:i": [(op that reads it, as which input)]}."""

_RULES: Mapping[str, Rule] = {
    **RULES,
    **dict.fromkeys(NORMS, functools.partial(norm, is_taken_apart=True)),
    **dict.fromkeys(GRADIENTS, functools.partial(norm_gradient, is_taken_apart=True)),
}


def decompose_norms(
    flat: FlatGraph, properties: TensorProperties, batch: int, axis_of_feed: Mapping[str, int]
) -> tuple[FlatGraph, TensorProperties]:
    """The step whose batch normalisations are taken apart where that lets them be split.

    The op that makes the normalised images keeps the name of the op that did; so does the one
    that makes the gradient of the images.

    Args:
      axis_of_feed: {fed tensor "op:0": which axis is its batch}.

    Returns:
      The step and its tensors; the same objects where there is nothing to take apart.
    """
    training = {
        node.name
        for node in flat.graph_def.node
        if node.op in NORMS | GRADIENTS and attr_of(node, "is_training").b
    }
    if not training:
        return flat, properties
    answers = decide(flat, properties, batch, axis_of_feed, rules=_RULES).answer_of_op
    wanted = {name for name in training if is_across(answers[name])}
    users = _users_of_tensors(flat)
    # Forward ops are taken apart with all their gradients; none that can't be.
    chosen = set()
    for name in wanted:
        node = flat.nodes[name]
        shape = properties.shape(node.input[0])
        if node.op not in NORMS or shape is None or min(shape) < 1:
            continue
        readers, is_apart = _readers_of_reserved(flat, users, name)
        if is_apart and readers <= training:
            chosen |= {name, *readers}
    return _Rewriting(flat, properties, users, chosen).done() if chosen else (flat, properties)


class _Rewriting:
    """A copy of a step in which some ops are taken apart."""

    def __init__(
        self, flat: FlatGraph, properties: TensorProperties, users: Users, chosen: set[str]
    ):
        self.flat, self.users, self.chosen = flat, users, chosen
        self.shape_of, self.dtype_of = dict(properties.shape_of), dict(properties.dtype_of)
        self.bytes_of = dict(properties.bytes_of)
        self.properties = properties
        self.replaced: dict[str, str] = {}  # {"op:i": the tensor that takes its place}
        self.added: dict[str, list[str]] = {}
        self.taken = set(flat.nodes)

    def done(self) -> tuple[FlatGraph, TensorProperties]:
        """The whole copy."""
        flat = with_nodes(self.flat, self._nodes_for)
        # What passed on what the gradients read stays, though nobody reads it any more.
        flat = dataclasses.replace(
            flat,
            fetches=[self.replaced.get(fetch, fetch) for fetch in self.flat.fetches],
            share_of_node=self._for_added(self.flat.share_of_node),
            after_of_node=self._for_added(self.flat.after_of_node),
        )
        properties = dataclasses.replace(
            self.properties,
            shape_of=self.shape_of,
            dtype_of=self.dtype_of,
            bytes_of=self.bytes_of,
            first=None,
        )
        return flat, properties

    def _nodes_for(self, node: NodeDef) -> Sequence[NodeDef]:
        if node.name in self.chosen:
            return self._taken_apart(node)
        new = copy.deepcopy(node)
        new.input[:] = [self._name(name) for name in node.input]
        return [new]

    def _name(self, name: str) -> str:
        return name if name.startswith("^") else self.replaced.get(tensor_of(name), name)

    def _taken_apart(self, node: NodeDef) -> Sequence[NodeDef]:
        inputs = [self._name(name) for name in data_inputs(node)][:5]
        controls = [name for name in node.input if name.startswith("^")]
        images = node.input[0]
        shape, dtype = self.properties.shape(images), self.properties.dtype(images)
        assert shape is not None
        for table in (self.shape_of, self.dtype_of, self.bytes_of):
            del table[node.name]  # type: ignore[attr-defined]
        formula: Callable[..., list[Tensor]] = backward
        if node.op in NORMS:
            is_run_on = any(f"{node.name}:{index}" in self.users for index in (1, 2))
            formula = functools.partial(forward, is_run_on=is_run_on)
        of_channels = ("float32", (shape[channel_axis(attributes(node))],))
        num_images = 1 if node.op in NORMS else 2
        given = [(dtype, tuple(shape))] * num_images + [of_channels] * (5 - num_images)
        apart = traced(node, formula, given)
        named = {}
        for op in apart.ops:
            named[op.name] = free_name(f"{node.name}/apart/{op.name}", self.taken)
            if op.name == op_of(apart.outputs[0]):
                named[op.name] = node.name
            self.taken.add(named[op.name])
        self.added[node.name] = [*named.values()]
        copies, results = apart.copied(inputs, named.__getitem__)
        for op, made in zip(apart.ops, copies, strict=True):
            made.device = node.device
            made.input.extend(controls)
            if made.name == node.name and "_class" in node.attr:
                made.attr["_class"].CopyFrom(node.attr["_class"])
            # What a kernel keeps for another one has no shape, and is empty here.
            shapes = [(0,) if t.shape.rank is None else tuple(t.shape) for t in op.outputs]
            self.shape_of[made.name] = [*shapes]
            self.dtype_of[made.name] = [t.dtype.name for t in op.outputs]
            self.bytes_of[made.name] = [
                num_elements(shape) * t.dtype.size
                for shape, t in zip(shapes, op.outputs, strict=True)
            ]
        self.replaced.update({f"{node.name}:{i}": tensor for i, tensor in enumerate(results)})
        return copies

    def _for_added(self, value_of_node: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(value_of_node)
        for name, added in self.added.items():
            if name in result:
                result.update(dict.fromkeys(added, result[name]))
        return result


# Batch normalisation in training and its gradient, as ops that add up over parts of the batch.
#
#   mean = sum(x) / n,  variance = sum((x - mean)^2) / n,  n = elements per channel
#   y = (x - mean) * r * scale + offset,  r = 1 / sqrt(variance + epsilon)
#   running variance: variance * n / (n - 1)
#   d_offset = sum(d_y),  d_scale = sum(d_y * (x - mean)) * r
#   d_x = scale * r * (d_y - d_offset / n - (x - mean) * r * d_scale / n)
#
# (Ioffe and Szegedy 2015; TensorFlow's fused_batch_norm_op.cc.) The variance takes two passes:
# E[x^2] - E[x]^2 would cancel.
#
# Where channels come last and floats have 32 bits, TensorFlow's own fused kernels for given
# statistics do most of that, so that images are read and written as seldom as can be.


def forward(
    attrs: Attributes,
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    *old: Tensor,
    is_run_on: bool = True,
) -> list[Tensor]:
    """FusedBatchNorm* in training.

    Args:
      old: mean and variance to run on from.
      is_run_on: whether somebody reads mean and variance to run on with.

    Returns:
      What takes the place of its outputs: y, mean and variance to run on with, what the gradient
      reads (mean and variance), and what nobody reads any more.
    """
    axes, wide = _axes(attrs), tf.cast(x, tf.float32)
    mean = tf.reduce_mean(wide, axes, name="mean")
    apart = tf.math.squared_difference(wide, _spread(attrs, mean))
    variance = tf.reduce_mean(apart, axes, name="variance")
    running = _running(attrs, x, old, mean, variance) if is_run_on else [mean, variance]
    y = _normalised(attrs, x, scale, offset, mean, variance)
    return [y, *running, mean, variance, variance]


def _running(
    attrs: Attributes, x: Tensor, old: Sequence[Tensor], mean: Tensor, variance: Tensor
) -> list[Tensor]:
    """Mean and variance to run on with: (1 - f) * old + f * (mean, variance * n / (n - 1))."""
    n, one = _count(attrs, x), tf.constant(1, tf.float32)
    unbiased = variance * (n / tf.maximum(n - one, one, name="divisor"))
    factor = attrs["exponential_avg_factor"]
    if factor == 1.0:
        return [mean, unbiased]
    kept, taken = tf.constant(np.float32(1) - np.float32(factor)), tf.constant(factor, tf.float32)
    return [old[0] * kept + mean * taken, old[1] * kept + unbiased * taken]


def backward(
    attrs: Attributes, d_y: Tensor, x: Tensor, scale: Tensor, mean: Tensor, variance: Tensor
) -> list[Tensor]:
    """What takes the place of outputs 0 to 2 of a FusedBatchNormGrad*: d_x, d_scale, d_offset."""
    r = tf.math.rsqrt(variance + attrs["epsilon"])
    slope = scale * r  # what d_y is multiplied with
    n, axes, dtype = _count(attrs, x), _axes(attrs), x.dtype
    if dtype == tf.float32 and channel_axis(attrs) != 1:
        return _fused_backward(attrs, slope / n, d_y, x, scale, mean, variance)
    d_y, x = tf.cast(d_y, tf.float32), tf.cast(x, tf.float32)
    x = x - _spread(attrs, mean)
    d_offset = tf.reduce_sum(d_y, axes)
    d_scale = tf.reduce_sum(d_y * x, axes) * r
    moved = x * _spread(attrs, d_scale / n * r) + _spread(attrs, d_offset / n)
    d_x = (d_y - moved) * _spread(attrs, slope)
    return [tf.cast(d_x, dtype), d_scale, d_offset]


def _fused_backward(
    attrs: Attributes, slope: Tensor, d_y: Tensor, x: Tensor, scale: Tensor, *given: Tensor
) -> list[Tensor]:
    """The same with two fused kernels; slope is that of one element, divided by n.

    The gradient for given statistics is scale * r * d_y, d_scale and d_offset; what is missing,
    -slope / n * (d_offset + (x - mean) * r * d_scale), is a normalisation of x.
    """
    d_x, d_scale, d_offset, *_ = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=d_y, x=x, scale=scale, reserve_space_1=given[0], reserve_space_2=given[1],
        reserve_space_3=given[1], **_of_given(attrs),
    )  # fmt: skip
    slope = -slope
    correction = _normalised(attrs, x, slope * d_scale, slope * d_offset, *given)
    return [d_x + correction, d_scale, d_offset]


def _of_given(attrs: Attributes) -> dict[str, object]:
    """Attributes of TensorFlow's kernels for given statistics."""
    layout = attrs["data_format"].decode()
    return {"epsilon": attrs["epsilon"], "data_format": layout, "is_training": False}


def _normalised(attrs: Attributes, x: Tensor, *others: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, by the fused kernel."""
    inputs = dict(zip(("scale", "offset", "mean", "variance"), others, strict=True))
    return tf.raw_ops.FusedBatchNormV3(x=x, **inputs, **_of_given(attrs))[0]


def channel_axis(attrs: Attributes) -> int:
    """Which dimension the channels are: 1 or the last one."""
    return 1 if attrs["data_format"].startswith(b"NC") else len(attrs["data_format"]) - 1


def _axes(attrs: Attributes) -> list[int]:
    """All dimensions but the channels."""
    return [axis for axis in range(len(attrs["data_format"])) if axis != channel_axis(attrs)]


def _spread(attrs: Attributes, vector: Tensor) -> Tensor:
    """A number for each channel, so that it is broadcast over images."""
    if channel_axis(attrs) != 1:
        return vector
    return tf.reshape(vector, [1, *vector.shape, *[1] * (len(attrs["data_format"]) - 2)])


def _count(attrs: Attributes, x: Tensor) -> Tensor:
    """n: how many elements there are per channel, counted when it runs."""
    channels = x.shape[channel_axis(attrs)]
    size = tf.raw_ops.Size(input=x, out_type=tf.int64)  # tf.size would be a constant
    return tf.cast(size, tf.float32) / tf.constant(channels, tf.float32, name="channels")


def _users_of_tensors(flat: FlatGraph) -> Users:
    """Fetches are read by ""."""
    users: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for node in flat.graph_def.node:
        for position, name in enumerate(node.input):
            if not name.startswith("^"):
                users[tensor_of(name)].append((node.name, position))
    for fetch in flat.fetches:
        if ":" in fetch:
            users[fetch].append(("", 0))
    return users


def _readers_of_reserved(flat: FlatGraph, users: Users, name: str) -> tuple[set[str], bool]:
    """Gradients that read what a forward op reserves for them; whether nobody else does."""
    todo = [f"{name}:{index}" for index in _RESERVED]
    readers = set()
    while todo:
        for user, position in users.get(todo.pop(), ()):
            node = flat.nodes.get(user)
            if node is not None and node.op in _PASSING:
                todo.append(f"{user}:{position}")
            elif node is not None and node.op in GRADIENTS and position in _RESERVED:
                readers.add(user)
            else:
                return set(), False
    # What a gradient has beyond its three results is made for nobody.
    return readers, not any(f"{reader}:{i}" in users for reader in readers for i in (3, 4))
