"""Makes strings that a run can decode: serialized examples, pictures, tensors.

What an input of strings must hold is found by following it through the graph to the op that reads
it. The ops inside a loop's or a conditional's body can't be followed to; where an input reaches
one, a decoder of pictures anywhere in the function library counts as its reader.
"""

import base64
import functools
import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.loading.index_ranges import ElementFlow
from graphs.names import data_inputs
from graphs.protos import NodeDef, attribute

FEATURE_LIMIT = 100
"""Integer features are below this, as integer inputs are."""
_EXAMPLE_OPS = frozenset({"ParseExample", "ParseExampleV2", "ParseSingleExample"})
_PICTURE_OP = re.compile(r"Decode(And)?(Crop)?(Jpeg|Png|Bmp|Gif|Image)|ExtractJpegShape")
_LEAD_INTO_BODIES = op_types.LOOPS | op_types.CONDITIONALS | {"TensorListFromTensor"}
_DT_FLOAT, _DT_INT64, _DT_STRING = 1, 9, 7
_PICTURE_SIZE = 16

MakeString = Callable[[np.random.Generator], bytes]


class StringContents:
    """What the strings of a flat graph's inputs must hold."""

    def __init__(self, flow: ElementFlow):
        self._flow = flow

    def maker(self, tensor: str) -> MakeString | None:
        """Makes strings that the readers of `tensor` can decode; None where any string will do."""
        for node in self._readers(tensor):
            if node.op in _EXAMPLE_OPS:
                return functools.partial(_example, self._features(node))
            if _PICTURE_OP.fullmatch(node.op):
                return _picture
            if node.op == "DecodeBase64":
                return lambda rng: base64.urlsafe_b64encode(rng.bytes(6))
            if node.op == "ParseTensor":
                return functools.partial(_tensor, attribute(node, "out_type").type)
            if node.op in _LEAD_INTO_BODIES:
                bodies = (function.node_def for function in self._flow.flat.library.values())
                if any(_PICTURE_OP.fullmatch(each.op) for body in bodies for each in body):
                    return _picture
        return None

    def _readers(self, tensor: str) -> Iterator[NodeDef]:
        """The ops that read the elements of a tensor, also behind ops that pass them on."""
        pending, seen = [tensor], {tensor}
        while pending:
            for node, position in self._flow.readers.get(pending.pop(), ()):
                yield node
                new = [t for t in self._flow.passed_on(node, position) if t not in seen]
                seen.update(new)
                pending.extend(new)

    def _features(self, node: NodeDef) -> Mapping[str, tuple[int, int]]:
        """{feature: (dtype, how many values)} of an op that parses examples."""
        shapes = node.attr["dense_shapes"].list.shape
        dense = [int(np.prod([d.size for d in shape.dim], dtype=int)) for shape in shapes]
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

    def _keys(self, node: NodeDef, argument: str, count: int) -> list[str]:
        """The names of `count` features, which are an attribute or constant inputs of the op."""
        if argument in node.attr:
            return [key.decode(errors="replace") for key in node.attr[argument].list.s]
        inputs = data_inputs(node)
        if node.op == "ParseExampleV2":
            position = {"sparse_keys": 2, "dense_keys": 3, "ragged_keys": 4}[argument]
            return self._strings(inputs[position])[:count]
        if argument == "ragged_keys":
            return []
        first = 2 if argument == "sparse_keys" else 2 + node.attr["Nsparse"].i
        return [self._strings(name)[0] for name in inputs[first : first + count]]

    def _strings(self, tensor: str) -> list[str]:
        """The strings that a tensor always holds; none where they are not constant."""
        values = self._flow.values.value(tensor)
        if values is None:
            return []
        return [value.decode(errors="replace") for value in np.ravel(values).tolist()]


def _example(features: Mapping[str, tuple[int, int]], rng: np.random.Generator) -> bytes:
    """A tf.Example that has all the features."""
    example = tf.train.Example()
    for name, (kind, count) in features.items():
        feature = example.features.feature[name]
        if kind == _DT_FLOAT:
            feature.float_list.value.extend(rng.standard_normal(count).astype(np.float32).tolist())
        elif kind == _DT_INT64:
            feature.int64_list.value.extend(rng.integers(0, FEATURE_LIMIT, count).tolist())
        else:
            words = rng.integers(0, FEATURE_LIMIT, count).tolist()
            feature.bytes_list.value.extend(str(word).encode() for word in words)
    return example.SerializeToString(deterministic=True)


def _picture(rng: np.random.Generator) -> bytes:
    """A small JPEG of noise, which every decoder of pictures reads."""
    pixels = rng.integers(0, 256, (_PICTURE_SIZE, _PICTURE_SIZE, 3)).astype(np.uint8)
    return tf.io.encode_jpeg(pixels).numpy()


def _tensor(kind: int, rng: np.random.Generator) -> bytes:
    """A serialized vector of two values."""
    value = tf.cast(tf.constant(rng.integers(0, FEATURE_LIMIT, 2)), tf.as_dtype(kind))
    return tf.io.serialize_tensor(value).numpy()
