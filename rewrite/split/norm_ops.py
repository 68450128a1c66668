"""Small pieces of graph that batch normalisation is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphs.names import free_name
from rewrite.split.op_view import attr_of

Shape = tuple[int, ...]


@dataclasses.dataclass
class NewOps:
    """Ops that take the place of one op.

    Attributes:
      name: of that op; the op that makes its output 0 has it too.
      taken: names that other ops have.
      add: adds a NodeDef with the shapes and dtypes of its outputs.
    """

    name: str
    taken: set[str]
    add: Callable[[Any, Sequence[Shape], Sequence[str]], None]

    def op(
        self, op: str, suffix: str, inputs: Sequence[str], shape: Shape, dtype: str, /, **attrs: Any
    ) -> str:
        """Adds an op with one output; returns that."""
        return self.op_of_many(op, suffix, inputs, [shape], [dtype], **attrs)

    def op_of_many(
        self,
        op: str,
        suffix: str,
        inputs: Sequence[str],
        shapes: Sequence[Shape],
        dtypes: Sequence[str],
        /,
        **attrs: Any,
    ) -> str:
        """Adds an op; returns its output 0. Attributes are dtypes by name, numbers or bytes."""
        import tensorflow as tf

        name = self._free(f"{self.name}/apart/{suffix}") if suffix else self.name
        node = tf.compat.v1.NodeDef(name=name, op=op, input=[i.removesuffix(":0") for i in inputs])
        for key, value in attrs.items():
            if isinstance(value, str):
                node.attr[key].type = tf.as_dtype(value).as_datatype_enum
            elif isinstance(value, bool):
                node.attr[key].b = value
            elif isinstance(value, bytes):
                node.attr[key].s = value
            elif isinstance(value, float):
                node.attr[key].f = value
            else:
                node.attr[key].tensor.CopyFrom(tf.make_tensor_proto(value))
        self.add(node, shapes, dtypes)
        return f"{name}:0"

    def _free(self, name: str) -> str:
        name = free_name(name, self.taken)
        self.taken.add(name)
        return name

    def const(self, suffix: str, value: np.ndarray) -> str:
        """Adds a constant."""
        dtype = value.dtype.name
        return self.op("Const", suffix, [], value.shape, dtype, value=value, dtype=dtype)

    def floats(self, op: str, suffix: str, inputs: Sequence[str], shape: Shape) -> str:
        """Adds an op of type T = float32."""
        return self.op(op, suffix, inputs, shape, "float32", T="float32")

    def cast(self, suffix: str, tensor: str, shape: Shape, old: str, new: str) -> str:
        """The tensor as another dtype; itself if it has that."""
        if old == new:
            return tensor
        return self.op("Cast", suffix, [tensor], shape, new, SrcT=old, DstT=new)


@dataclasses.dataclass(frozen=True)
class Images:
    """What an op normalises.

    Attributes:
      shape: of the images.
      dtype: of the images; statistics are float32.
      layout: "NHWC", "NCHW", "NDHWC" or "NCDHW".
      epsilon: see above.
    """

    shape: Shape
    dtype: str
    layout: bytes
    epsilon: float

    @staticmethod
    def of(node: Any, shape: Shape, dtype: str) -> Images:
        """What a FusedBatchNorm* or its gradient normalises."""
        layout = attr_of(node, "data_format").s
        return Images(shape, dtype, layout, attr_of(node, "epsilon").f)

    @property
    def channel_axis(self) -> int:
        """Which dimension the channels are."""
        return 1 if self.layout.startswith(b"NC") else len(self.shape) - 1

    @property
    def channels(self) -> Shape:
        """The shape of what there is one of for each channel."""
        return (self.shape[self.channel_axis],)

    @property
    def axes(self) -> np.ndarray:
        """All dimensions but the channels."""
        others = [a for a in range(len(self.shape)) if a != self.channel_axis]
        return np.array(others, np.int32)

    @property
    def is_fused(self) -> bool:
        """Whether the fused kernels for given statistics serve, forward and backward."""
        return self.dtype == "float32" and self.channel_axis != 1


def spread(new: NewOps, suffix: str, vector: str, images: Images) -> str:
    """A number for each channel, so that it is broadcast over images."""
    if images.channel_axis != 1:
        return vector
    shape = tuple(images.channels[0] if a == 1 else 1 for a in range(len(images.shape)))
    sizes = new.const(f"{suffix}/shape", np.array(shape, np.int32))
    return new.op("Reshape", suffix, [vector, sizes], shape, "float32", T="float32", Tshape="int32")


def reduced(new: NewOps, op: str, suffix: str, tensor: str, images: Images) -> str:
    """Sum or Mean over all but the channels."""
    axes = new.const(f"{suffix}/axes", images.axes)
    return new.op(
        op, suffix, [tensor, axes], images.channels, "float32",
        T="float32", Tidx="int32", keep_dims=False,
    )  # fmt: skip


def count(new: NewOps, tensor: str, images: Images) -> str:
    """n: how many elements there are per channel, counted when it runs."""
    size = new.op("Size", "size", [tensor], (), "int64", T=images.dtype, out_type="int64")
    as_float = new.op("Cast", "size/float", [size], (), "float32", SrcT="int64", DstT="float32")
    channels = new.const("channels", np.array(images.channels[0], np.float32))
    return new.floats("RealDiv", "count", [as_float, channels], ())


def normalised(new: NewOps, suffix: str, inputs: Sequence[str], images: Images) -> str:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, by the fused kernel.

    Args:
      new: where ops are added.
      suffix: of the op's name.
      inputs: x, scale, offset, mean, variance.
      images: what x is.
    """
    rows = images.channels
    return new.op_of_many(
        "FusedBatchNormV3", suffix, inputs, [images.shape, rows, rows, rows, rows, (0,)],
        [images.dtype, *["float32"] * 5], T=images.dtype, U="float32", data_format=images.layout,
        epsilon=images.epsilon, is_training=False,
    )  # fmt: skip
