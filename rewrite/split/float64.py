"""A graph in float64: what it computes is then the same up to the last few of sixteen digits.

All tensors of float32, float16 and bfloat16 become float64: constants, placeholders, variables,
what ops and functions take and give. An op that has no such CPU kernel keeps its type between two
Casts; so does one that draws random numbers, which have to be the same. Batch normalisation and
local response normalisation, which have float32 kernels alone, are written out.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphs.building.op_outputs import argument_types, op_definition, output_offsets
from graphs.function_library import library_of, named_functions
from rewrite.split.wide_formulas import FORMULAS, written_out
from rewrite.split.wide_types import (
    fill_in_types,
    is_random,
    wide_type,
    widen_types,
    widened,
)


@dataclasses.dataclass(frozen=True)
class Float64Graph:
    """A graph in float64.

    Attributes:
      graph_def: the graph; ops keep their names.
      narrow_ops: {op type: how many} that compute with narrower floats still, what they read is
        rounded.
    """

    graph_def: Any
    narrow_ops: Mapping[str, int]


def to_float64(graph_def: Any, exact: Mapping[str, float] | None = None) -> Float64Graph:
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

    def __init__(
        self,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        function: str,
        exact: Mapping[str, float],
    ):
        self.nodes: list[Any] = []
        self.moved: dict[str, str] = {}
        self.narrow: Counter[str] = Counter()
        self._before, self._after = before, after
        self._function, self._exact = function, exact

    def read(self, nodes: list[Any]) -> None:
        """Makes the ops, and then has them read each other."""
        made = [self._made(node) for node in nodes]
        for node, (wide, casts) in zip(nodes, made, strict=True):
            for index, name in enumerate(wide.input):
                wide.input[index] = self.moved.get(_full(name, self._function), name)
            if node.op in FORMULAS and not self._function and wide.op != node.op:
                self.nodes.extend(written_out(node, list(wide.input)))
                continue
            self._narrow_inputs(wide)
            self.nodes.extend([wide, *casts])

    def _made(self, node: Any) -> tuple[Any, list[Any]]:
        """The op, and what makes its outputs float64."""
        if node.op in FORMULAS and not self._function:
            instead = type(node)(name=node.name, op="IdentityN", input=node.input)
            return instead, []
        wide = None if node.op == "Bitcast" else widened(node, self._after)
        if wide is None:
            wide = type(node)()
            wide.CopyFrom(node)
            fill_in_types(wide, self._after)
        wide.device = ""  # it may be one of a cluster that is not here
        if is_random(node.op):
            self._fix_seed(wide)
        if wide.op == "Const":
            self._widen_value(wide)
        if wide.op in self._after or any(named_functions(wide)):
            widen_types(wide)
        return wide, self._casts(wide)

    def _casts(self, node: Any) -> list[Any]:
        """Casts for outputs that are narrow still; what reads them reads the Casts then."""
        casts: list[Any] = []
        names = _output_names(node, self._after, self._function)
        types = argument_types(node, self._after, of_outputs=True)
        for name, number in zip(names, types, strict=True):
            if wide_type(number) == number:
                continue
            cast = self._cast(node, f"{node.name}/float64_{len(casts)}", name, number, False)
            self.moved[name] = f"{cast.name}:y:0" if self._function else cast.name
            casts.append(cast)
        return casts

    def _narrow_inputs(self, node: Any) -> None:
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

    def _cast(self, node: Any, name: str, tensor: str, number: int, to_narrow: bool) -> Any:
        cast = type(node)(name=name, op="Cast", input=[tensor])
        ends = (wide_type(number), number) if to_narrow else (number, wide_type(number))
        cast.attr["SrcT"].type, cast.attr["DstT"].type = ends
        return cast

    def _fix_seed(self, node: Any) -> None:
        """A random op without a seed draws the same numbers in each run."""
        names = {a.name for a in op_definition(node.op, node.name).attr} & {"seed", "seed2"}
        if names and not any(name in node.attr and node.attr[name].i for name in names):
            for name in names:
                node.attr[name].i = 1 + zlib.crc32(f"{self._function}/{node.name}".encode())

    def _widen_value(self, node: Any) -> None:
        import tensorflow as tf

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
    if function or name.startswith("^") or ":" in name:
        return name
    return f"{name}:0"


def _output_names(node: Any, library: Mapping[str, Any], function: str) -> list[str]:
    """What inputs call the outputs of an op."""
    types = argument_types(node, library, of_outputs=True)
    if not function:
        return [f"{node.name}:{index}" for index in range(len(types))]
    offsets = output_offsets(node, library)
    ends = [*offsets.values(), len(types)][1:]
    return [
        f"{node.name}:{argument}:{index}"
        for (argument, begin), end in zip(offsets.items(), ends, strict=True)
        for index in range(end - begin)
    ]
