"""Takes batch normalisation in training apart, so that its statistics stay those of the batch.

Only where its images would be sharded; a forward op and its gradients together, or none of them,
since the gradient reads what the fused forward op left for it.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from graphs.building.shapes import TensorProperties, num_elements
from graphs.flat_graph import FlatGraph, Origin
from graphs.names import data_inputs, free_name, op_of, tensor_of
from rewrite.split.decide import decide
from rewrite.split.merge_reads import with_nodes
from rewrite.split.norm_formulas import backward, channel_axis, forward
from rewrite.split.norm_pairs import GRADIENTS, NORMS, pairs, users_of_tensors
from rewrite.split.op_view import attr_of
from rewrite.split.rules.norms import is_across, norm, norm_gradient
from rewrite.split.rules.table import RULES, Rule
from rewrite.split.traced import attributes, traced

_RULES: Mapping[str, Rule] = {
    **RULES,
    **dict.fromkeys(NORMS, functools.partial(norm, is_taken_apart=True)),
    **dict.fromkeys(GRADIENTS, functools.partial(norm_gradient, is_taken_apart=True)),
}
_FORWARD_ALONE = functools.partial(forward, is_run_on=False)


def decompose_norms(
    flat: FlatGraph, properties: TensorProperties, batch: int, axis_of_feed: Mapping[str, int]
) -> tuple[FlatGraph, TensorProperties]:
    """The step whose batch normalisations are taken apart where that lets them be split.

    The op that makes the normalised images keeps the name of the op that did; so does the one
    that makes the gradient of the images.

    Args:
      flat: the step with its calls opened.
      properties: of its tensors.
      batch: how many entries the batch has.
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
    chosen = pairs(flat, properties, training, wanted)
    return _Rewriting(flat, properties, chosen).done() if chosen else (flat, properties)


class _Rewriting:
    """A copy of a step in which some ops are taken apart."""

    def __init__(self, flat: FlatGraph, properties: TensorProperties, chosen: set[str]):
        self.flat, self.chosen = flat, chosen
        self.used: dict[str, set[int]] = defaultdict(set)
        for tensor in users_of_tensors(flat):
            op, _, index = tensor.partition(":")
            self.used[op].add(int(index))
        self.rows: list[tuple[Any, Origin]] = []
        self.shape_of, self.dtype_of = dict(properties.shape_of), dict(properties.dtype_of)
        self.bytes_of = dict(properties.bytes_of)
        self.properties = properties
        self.replaced: dict[str, str] = {}  # {"op:i": the tensor that takes its place}
        self.added: dict[str, list[str]] = {}
        self.taken = set(flat.nodes)

    def done(self) -> tuple[FlatGraph, TensorProperties]:
        """The whole copy."""
        for node, origin in zip(self.flat.graph_def.node, self.flat.origins, strict=True):
            if node.name in self.chosen:
                self._take_apart(node, origin)
            else:
                new = copy.deepcopy(node)
                new.input[:] = [self._name(name) for name in node.input]
                self.rows.append((new, origin))
        # What passed on what the gradients read stays, though nobody reads it any more.
        flat = dataclasses.replace(
            with_nodes(self.flat, self.rows),
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

    def _name(self, name: str) -> str:
        if name.startswith("^"):
            return name
        tensor = tensor_of(name)
        return self.replaced.get(tensor, name)

    def _take_apart(self, node: Any, origin: Origin) -> None:
        inputs = [self._name(name) for name in data_inputs(node)][:5]
        controls = [name for name in node.input if name.startswith("^")]
        images = node.input[0]
        shape, dtype = self.properties.shape(images), self.properties.dtype(images)
        assert shape is not None
        for table in (self.shape_of, self.dtype_of, self.bytes_of):
            del table[node.name]  # type: ignore[attr-defined]
        formula: Callable[..., list[Any]] = backward
        if node.op in NORMS:
            formula = forward if self.used[node.name] & {1, 2} else _FORWARD_ALONE
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
            self.rows.append((made, origin))
            # What a kernel keeps for another one has no shape, and is empty here.
            shapes = [(0,) if t.shape.rank is None else tuple(t.shape) for t in op.outputs]
            self.shape_of[made.name] = [*shapes]
            self.dtype_of[made.name] = [t.dtype.name for t in op.outputs]
            self.bytes_of[made.name] = [
                num_elements(shape) * t.dtype.size
                for shape, t in zip(shapes, op.outputs, strict=True)
            ]
        self.replaced.update({f"{node.name}:{i}": tensor for i, tensor in enumerate(results)})

    def _for_added(self, value_of_node: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(value_of_node)
        for name, added in self.added.items():
            if name in result:
                result.update(dict.fromkeys(added, result[name]))
        return result
