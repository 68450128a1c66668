"""A graph in float64: what it computes is then the same up to the last few of sixteen digits.

All tensors of float32, float16 and bfloat16 become float64: constants, placeholders, variables,
what ops and functions take and give. An op that has no such CPU kernel keeps its type between two
Casts; so does one that draws random numbers, which have to be the same. Batch normalisation and
local response normalisation, which have float32 kernels alone, are written out: formulas written
with TensorFlow, as the ops that they trace to.
"""

import copy
import dataclasses
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import graphs.late_tensorflow as tf
from graphs.building.op_outputs import argument_types, attr_of, op_definition, output_names
from graphs.function_library import library_of, named_functions
from graphs.protos import GraphDef, Library, NodeDef, Operation, Tensor, TensorShape
from rewrite.split.float64.types import fill_in_types, is_random, wide_type, widen_types, widened


@dataclasses.dataclass(frozen=True)
class Traced:
    """What a formula makes of inputs a0, a1, ..."""

    ops: Sequence[Operation]  # the ops that it adds
    outputs: Sequence[str]  # names of the tensors that it returns, which may be inputs

    def copied(
        self, inputs: Sequence[str], name_of: Callable[[str], str]
    ) -> tuple[list[NodeDef], list[str]]:
        """NodeDefs that read other inputs, and the tensors that they return.

        Args:
          inputs: what takes the place of a0, a1, ...
        """
        given = {f"a{i}": name for i, name in enumerate(inputs)}

        def renamed(name: str) -> str:
            control = "^" if name.startswith("^") else ""
            op, colon, index = name.removeprefix("^").partition(":")
            return given.get(op) or f"{control}{name_of(op)}{colon}{index}"

        copies = []
        for op in self.ops:
            node = copy.deepcopy(op.node_def)
            node.name = name_of(node.name)
            node.attr.pop("_class", None)
            node.input[:] = [renamed(name) for name in node.input]
            copies.append(node)
        return copies, [renamed(tensor) for tensor in self.outputs]


Attributes = Mapping[str, Any]  # an op's
_TRACED: dict[tuple[object, ...], Traced] = {}


def traced(
    node: NodeDef,
    formula: Callable[..., Sequence[Tensor]],
    inputs: Sequence[tuple[str, TensorShape]],
) -> Traced:
    """Traces a formula for an op; for others like it once.

    Args:
      formula: from its attributes and tensors to tensors.
      inputs: the dtype and the shape, which may be None, of each tensor.
    """
    attrs = attributes(node)
    key = formula, repr(sorted(attrs.items())), tuple(inputs)
    if key not in _TRACED:
        with tf.Graph().as_default() as graph:
            given = [
                tf.compat.v1.placeholder(dtype, shape, f"a{i}")
                for i, (dtype, shape) in enumerate(inputs)
            ]
            outputs = [tensor.name for tensor in formula(attrs, *given)]
        ops = [op for op in graph.get_operations() if op.type != "Placeholder"]
        _TRACED[key] = Traced(ops, outputs)
    return _TRACED[key]


def attributes(node: NodeDef) -> Attributes:
    """{attribute: its value}, with the defaults."""
    values = {}
    for attribute in op_definition(node.op, node.name).attr:
        value = attr_of(node, attribute.name)
        kind = value.WhichOneof("value")
        values[attribute.name] = getattr(value, kind) if kind else None
    return values


@dataclasses.dataclass(frozen=True)
class Float64Graph:
    """A graph in float64.

    Attributes:
      graph_def: the graph; ops keep their names.
      narrow_ops: {op type: how many} that compute with narrower floats still, what they read is
        rounded.
    """

    graph_def: GraphDef
    narrow_ops: Mapping[str, int]


def to_float64(graph_def: GraphDef, exact: Mapping[str, float] | None = None) -> Float64Graph:
    """The graph in float64.

    Args:
      graph_def: any; it is not changed.
      exact: {constant: the value that its own was rounded from}.
    """
    wide = type(graph_def)(versions=graph_def.versions)
    wide.library.CopyFrom(graph_def.library)
    for function in wide.library.function:
        signature = function.signature
        for argument in (*signature.input_arg, *signature.output_arg):
            argument.type = wide_type(argument.type)
    before, after = library_of(graph_def), library_of(wide)
    narrow: Counter[str] = Counter()
    for function in wide.library.function:
        body = _Body(before, after, function.signature.name, {})
        body.read(list(before[function.signature.name].node_def))
        del function.node_def[:]
        function.node_def.extend(body.nodes)
        for key, value in function.ret.items():
            function.ret[key] = body.moved.get(value, value)
        narrow += body.narrow
    main = _Body(before, after, "", exact or {})
    main.read(list(graph_def.node))
    wide.node.extend(main.nodes)
    return Float64Graph(wide, dict(narrow + main.narrow))


class _Body:
    """The main graph or a function's body, op by op.

    Attributes:
      nodes: the ops in float64.
      moved: {tensor, as inputs name it: the tensor that holds it in float64}.
      narrow: {op type: how many} that compute with narrower floats.
    """

    def __init__(self, before: Library, after: Library, function: str, exact: Mapping[str, float]):
        self.nodes: list[NodeDef] = []
        self.moved: dict[str, str] = {}
        self.narrow: Counter[str] = Counter()
        self._before, self._after = before, after
        self._function, self._exact = function, exact

    def read(self, nodes: list[NodeDef]) -> None:
        """Makes the ops, and then has them read each other."""
        for node, (wide, casts) in zip(nodes, [self._made(node) for node in nodes], strict=True):
            for index, name in enumerate(wide.input):
                wide.input[index] = self.moved.get(_full(name, self._function), name)
            if node.op in FORMULAS and not self._function and wide.op != node.op:
                self.nodes.extend(written_out(node, list(wide.input)))
                continue
            self._narrow_inputs(wide)
            self.nodes.extend([wide, *casts])

    def _made(self, node: NodeDef) -> tuple[NodeDef, list[NodeDef]]:
        """The op, and what makes its outputs float64."""
        if node.op in FORMULAS and not self._function:
            return type(node)(name=node.name, op="IdentityN", input=node.input), []
        wide = None if node.op == "Bitcast" else widened(node, self._after)
        if wide is None:
            wide = copy.deepcopy(node)
            fill_in_types(wide, self._after)
        wide.device = ""  # it may be one of a cluster that is not here
        if is_random(node.op):
            self._fix_seed(wide)
        if wide.op == "Const":
            self._widen_value(wide)
        if wide.op in self._after or any(named_functions(wide)):
            widen_types(wide)
        return wide, self._casts(wide)

    def _casts(self, node: NodeDef) -> list[NodeDef]:
        """Casts for outputs that are narrow still; what reads them reads the Casts then."""
        casts: list[NodeDef] = []
        outputs = enumerate(output_names(node, self._after))
        names = [f"{node.name}:{name if self._function else index}" for index, name in outputs]
        types = argument_types(node, self._after, of_outputs=True)
        for name, number in zip(names, types, strict=True):
            if wide_type(number) == number:
                continue
            cast = self._cast(node, f"{node.name}/float64_{len(casts)}", name, number, False)
            self.moved[name] = f"{cast.name}:y:0" if self._function else cast.name
            casts.append(cast)
        return casts

    def _narrow_inputs(self, node: NodeDef) -> None:
        """Has an op that takes narrow floats read Casts of what is float64 now."""
        narrow = False
        for index, number in enumerate(argument_types(node, self._after)):
            if wide_type(number) == number:
                continue
            cast = self._cast(node, f"{node.name}/narrow_{index}", node.input[index], number, True)
            self.nodes.append(cast)
            node.input[index] = f"{cast.name}:y:0" if self._function else cast.name
            narrow = True
        self.narrow[node.op] += narrow
        self.narrow += Counter()

    def _cast(self, node: NodeDef, name: str, tensor: str, number: int, to_narrow: bool) -> NodeDef:
        cast = type(node)(name=name, op="Cast", input=[tensor])
        ends = (wide_type(number), number) if to_narrow else (number, wide_type(number))
        cast.attr["SrcT"].type, cast.attr["DstT"].type = ends
        return cast

    def _fix_seed(self, node: NodeDef) -> None:
        """A random op without a seed draws the same numbers in each run."""
        names = {a.name for a in op_definition(node.op, node.name).attr} & {"seed", "seed2"}
        if names and not any(name in node.attr and node.attr[name].i for name in names):
            for name in names:
                node.attr[name].i = 1 + zlib.crc32(f"{self._function}/{node.name}".encode())

    def _widen_value(self, node: NodeDef) -> None:
        tensor = node.attr["value"].tensor
        if node.attr["dtype"].type == tensor.dtype:
            return
        value = tf.make_ndarray(tensor)
        value = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
        if not self._function and node.name in self._exact:
            value = np.asarray(self._exact[node.name])
        tensor.CopyFrom(tf.make_tensor_proto(value))


def _full(name: str, function: str) -> str:
    """An input's name as `moved` has it: of a main graph "op:0", of a body as it is."""
    return name if function or name.startswith("^") or ":" in name else f"{name}:0"


# Formulas, in float64, of ops that TensorFlow has no float64 kernels for.
#
# They are what the ops' documentation says, and are used to compare runs, never in a model.


def written_out(node: NodeDef, inputs: Sequence[str]) -> list[NodeDef]:
    """NodeDefs for an op of FORMULAS; the last has its name and its outputs.

    Args:
      node: the op as it came.
      inputs: what it reads, floats in float64; control inputs last.
    """
    data = [name for name in inputs if not name.startswith("^")]
    controls = [name for name in inputs if name.startswith("^")]
    formula = traced(node, FORMULAS[node.op], [("float64", None)] * len(data))
    made, outputs = formula.copied(data, lambda op: f"{node.name}/float64/{op}")
    for each in made:
        if not each.input:
            each.input.extend(controls)
    last = type(node)(name=node.name, op="IdentityN", input=[*outputs, *controls])
    last.attr["T"].list.type.extend([tf.float64.as_datatype_enum] * len(outputs))
    return [*made, last]


def _norm(
    attrs: Attributes, x: Tensor, scale: Tensor, offset: Tensor, *old: Tensor
) -> list[Tensor]:
    """FusedBatchNorm*: (x - mean) / sqrt(variance + epsilon) * scale + offset."""
    x, back, axes = _channels_last(attrs, x)
    mean, variance = old
    running = list(old)
    if attrs["is_training"]:
        mean = tf.reduce_mean(x, axes)
        variance = tf.reduce_mean(tf.square(x - mean), axes)
        n = tf.cast(tf.size(x) / tf.size(mean), tf.float64)
        unbiased = variance * n / tf.maximum(n - 1.0, 1.0)
        factor = attrs.get("exponential_avg_factor", 1.0)
        batch = (mean, unbiased)
        running = [
            b if factor == 1.0 else (1.0 - factor) * o + factor * b
            for o, b in zip(running, batch, strict=True)
        ]
    y = (x - mean) * tf.math.rsqrt(variance + attrs["epsilon"]) * scale + offset
    return [back(y), *running, mean, variance, tf.zeros([0], tf.float64)]


def _norm_gradient(
    attrs: Attributes,
    d_y: Tensor,
    x: Tensor,
    scale: Tensor,
    mean: Tensor,
    variance: Tensor,
    *_: Tensor,
) -> list[Tensor]:
    """FusedBatchNormGrad*, by the chain rule from `_norm`."""
    d_y = _channels_last(attrs, d_y)[0]
    x, back, axes = _channels_last(attrs, x)
    root = tf.math.rsqrt(variance + attrs["epsilon"])
    normal = (x - mean) * root
    d_offset, d_scale = tf.reduce_sum(d_y, axes), tf.reduce_sum(d_y * normal, axes)
    d_x = d_y * scale * root
    if attrs["is_training"]:
        d_mean, d_normal = tf.reduce_mean(d_y, axes), tf.reduce_mean(d_y * normal, axes)
        d_x = scale * root * (d_y - d_mean - normal * d_normal)
    nothing = tf.zeros([0], tf.float64)
    return [back(d_x), d_scale, d_offset, nothing, nothing]


def _channels_last(
    attrs: Attributes, x: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor], list[int]]:
    """The images with their channels last, what turns them back, and all other axes."""
    layout = attrs["data_format"]
    axes = list(range(len(layout) - 1))
    if not layout.startswith(b"NC"):
        return x, lambda y: y, axes
    rank = len(layout)
    there, back = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    return tf.transpose(x, there), lambda y: tf.transpose(y, back), axes


def _response(attrs: Attributes, x: Tensor) -> list[Tensor]:
    """LRN: x / (bias + alpha * sum of squares over neighbouring channels) ** beta."""
    radius = attrs["depth_radius"]
    padded = tf.pad(tf.square(x), [[0, 0], [0, 0], [0, 0], [radius, radius]])
    depth = tf.shape(x)[3]
    sums = [padded[:, :, :, i : i + depth] for i in range(2 * radius + 1)]
    return [x * (attrs["bias"] + attrs["alpha"] * tf.add_n(sums)) ** -attrs["beta"]]


def _response_gradient(attrs: Attributes, d_y: Tensor, x: Tensor, _: Tensor) -> list[Tensor]:
    """LRNGrad."""
    return [tf.gradients(_response(attrs, x)[0], x, d_y)[0]]


FORMULAS: Mapping[str, Callable[..., list[Tensor]]] = {
    "FusedBatchNormV3": _norm,
    "FusedBatchNormV2": lambda *inputs: _norm(*inputs)[:5],
    "FusedBatchNorm": lambda *inputs: _norm(*inputs)[:5],
    "FusedBatchNormGradV3": _norm_gradient,
    "FusedBatchNormGradV2": _norm_gradient,
    "FusedBatchNormGrad": _norm_gradient,
    "LRN": _response,
    "LRNGrad": _response_gradient,
}
