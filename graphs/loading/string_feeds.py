"""Strings that ops can read: serialized examples and pictures, where a run decodes them.

Which strings an input must hold is followed through the graph, as index ranges are. An op inside a
loop's body can't be followed to, so a decoder anywhere in a body that the input reaches counts.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from graphs.loading.index_ranges import PASSES_ON, users_of_tensors
from graphs.names import parse_input

FEATURE_LIMIT = 100
"""Integer features are below this, as integer inputs are."""
_EXAMPLE_OPS = frozenset({"ParseExample", "ParseExampleV2", "ParseSingleExample"})
_PICTURE_OP = re.compile(r"Decode(And)?(Crop)?(Jpeg|Png|Bmp|Gif|Image)|ExtractJpegShape")
_LOOPS = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "TensorListFromTensor"})
_DT_FLOAT, _DT_INT64, _DT_STRING = 1, 9, 7
_PICTURE_SIZE = 16

MakeString = Callable[[np.random.Generator], bytes]


class StringContents:
    """What the strings of a flat graph's inputs must hold."""

    def __init__(self, graph_def: Any):
        self._library = {f.signature.name: f for f in graph_def.library.function}
        self._nodes = {node.name: node for node in graph_def.node}
        self._users = users_of_tensors(graph_def)

    def maker(self, tensor: str) -> MakeString | None:
        """What makes a string that the ops which read `tensor` understand; None for any string."""
        for node in self._readers(tensor):
            if node.op in _EXAMPLE_OPS:
                return functools.partial(_example, self._features(node))
            if _PICTURE_OP.fullmatch(node.op):
                return _picture
            if node.op == "DecodeBase64":
                return _base64
            if node.op == "ParseTensor":
                return functools.partial(_tensor, node.attr["out_type"].type)
            if node.op in _LOOPS and any(map(_decodes, self._library.values())):
                return _picture
        return None

    def _readers(self, tensor: str) -> Iterator[Any]:
        """Ops that read the elements of a tensor, through ops that only pass them on."""
        pending, seen = [tensor], {tensor}
        while pending:
            for node, position in self._users.get(pending.pop(), ()):
                yield node
                positions = PASSES_ON.get(node.op, ())
                if positions is None or position in positions:
                    count = len(node.input) if node.op in ("IdentityN", "Unpack") else 1
                    new = {f"{node.name}:{i}" for i in range(count)} - seen
                    seen |= new
                    pending.extend(new)

    def _features(self, node: Any) -> Mapping[str, tuple[int, int]]:
        """{feature: (dtype, how many values)} of an op that parses examples."""
        dense = [int(np.prod([d.size for d in s.dim], dtype=int)) for s in _shapes(node)]
        dense_types = list(node.attr["Tdense"].list.type)
        dense_keys = self._keys(node, "dense_keys", len(dense_types))
        features = {
            key: (kind, abs(size))
            for key, kind, size in zip(dense_keys, dense_types, dense, strict=True)
        }
        for keys, types in (("sparse_keys", "sparse_types"), ("ragged_keys", "ragged_value_types")):
            kinds = list(node.attr[types].list.type) if types in node.attr else []
            names = self._keys(node, keys, len(kinds))
            features.update({name: (kind, 2) for name, kind in zip(names, kinds, strict=True)})
        return features

    def _keys(self, node: Any, argument: str, count: int) -> list[str]:
        """Names of features: an attribute or a constant input, by the version of the op."""
        if argument in node.attr:
            return [key.decode(errors="replace") for key in node.attr[argument].list.s]
        inputs = [name for name in node.input if not name.startswith("^")]
        if node.op == "ParseExampleV2":
            position = {"sparse_keys": 2, "dense_keys": 3, "ragged_keys": 4}[argument]
            return self._constant(inputs[position])[:count]
        if argument == "ragged_keys":
            return []
        num_sparse = node.attr["Nsparse"].i
        first = 2 if argument == "sparse_keys" else 2 + num_sparse
        return [self._constant(name)[0] for name in inputs[first : first + count]]

    def _constant(self, tensor: str) -> list[str]:
        import tensorflow as tf

        node = self._nodes[parse_input(tensor).op]
        while node.op == "Identity":
            node = self._nodes[parse_input(node.input[0]).op]
        if node.op != "Const":
            return []
        values = np.ravel(tf.make_ndarray(node.attr["value"].tensor)).tolist()
        return [value.decode(errors="replace") for value in values]


def _shapes(node: Any) -> list[Any]:
    return list(node.attr["dense_shapes"].list.shape)


def _decodes(function: Any) -> bool:
    return any(_PICTURE_OP.fullmatch(node.op) for node in function.node_def)


def _example(features: Mapping[str, tuple[int, int]], rng: np.random.Generator) -> bytes:
    """A tf.Example that has all the features."""
    from tensorflow.core.example import example_pb2

    example = example_pb2.Example()
    for name, (kind, count) in features.items():
        feature = example.features.feature[name]
        if kind == _DT_FLOAT:
            feature.float_list.value.extend(rng.standard_normal(count).astype(np.float32).tolist())
        elif kind == _DT_INT64:
            feature.int64_list.value.extend(rng.integers(0, FEATURE_LIMIT, count).tolist())
        else:
            words = rng.integers(0, FEATURE_LIMIT, count).tolist()
            feature.bytes_list.value.extend(str(word).encode() for word in words)
    content: bytes = example.SerializeToString(deterministic=True)
    return content


def _picture(rng: np.random.Generator) -> bytes:
    """A small JPEG of noise, which every decoder of pictures reads."""
    import tensorflow as tf

    pixels = rng.integers(0, 256, (_PICTURE_SIZE, _PICTURE_SIZE, 3)).astype(np.uint8)
    content: bytes = tf.io.encode_jpeg(pixels).numpy()
    return content


def _base64(rng: np.random.Generator) -> bytes:
    return base64.urlsafe_b64encode(rng.bytes(6))


def _tensor(kind: int, rng: np.random.Generator) -> bytes:
    """A serialized vector of two values."""
    import tensorflow as tf

    value = tf.cast(tf.constant(rng.integers(0, FEATURE_LIMIT, 2)), tf.as_dtype(kind))
    content: bytes = tf.io.serialize_tensor(value).numpy()
    return content
