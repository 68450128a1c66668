"""Made-up inputs that pass what a run checks of them, such as tf.debugging.assert_less.

Checks of inputs alone are tried, one by one, with a few kinds of numbers for the inputs that they
depend on. What a run computes with its variables is not run here.
"""

import itertools
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

import graphs.late_tensorflow as tf
from graphs import op_types
from graphs.building.conditionals import has_nothing_to_place
from graphs.building.op_outputs import signature_of
from graphs.flat_graph import FlatGraph
from graphs.loading.number_forms import REAL, WHOLE, Form
from graphs.names import data_inputs, op_of
from graphs.protos import DType, Library, NodeDef
from graphs.source_model import TensorSpec

_CHECKS = op_types.CONDITIONALS | {"Assert", "Cholesky", "MatrixInverse", "CheckNumericsV2"}
_LARGE = re.compile("Conv|.*MatMul|Einsum|FusedBatchNorm|While|StatelessWhile|.*Call")
_MOST_INPUTS, _SECONDS = 4, 5.0

Arrays = Mapping[str, np.ndarray]
Make = Callable[[TensorSpec, Form], np.ndarray]


def settled(
    flat: FlatGraph, feeds: Sequence[TensorSpec], arrays: Arrays, make: Make
) -> dict[str, np.ndarray]:
    """The made-up arrays of a run, others for inputs with which a check fails, where it can pass.

    Args:
      make: makes an input's array of another form.
    """
    checks = _checks_of_inputs(flat, {op_of(spec.tensor): spec for spec in feeds})
    found, sizes = dict(arrays), {size for spec in feeds for size in spec.shape or ()}
    if not checks:
        return found
    passes, end = _passing(flat, checks), time.monotonic() + _SECONDS
    for number, check in enumerate(checks):
        if passes([check], found):
            continue
        inputs, earlier = list(checks[check]), list(checks)[:number]
        # Earlier checks of these inputs may want others of their inputs changed, too.
        for other in reversed(earlier):
            if any(spec in inputs for spec in checks[other]):
                inputs = [spec for spec in checks[other] if spec not in inputs] + inputs
        if len(inputs) > _MOST_INPUTS:
            continue
        # Made one after the other: of large inputs not all kinds fit into memory.
        kinds: list[list[Callable[[], np.ndarray]]] = [
            [partial(found.__getitem__, each.tensor), *_others(each, sizes, make)]
            for each in inputs
        ]
        # First all of one kind, then each of the next kind: zeros, ones, sizes.
        alike = zip(*kinds, strict=False)
        rising = zip(*(each[number:] for number, each in enumerate(kinds)), strict=False)
        for values in itertools.chain(alike, rising, itertools.product(*kinds)):
            if time.monotonic() > end:
                return found
            tensors = [each.tensor for each in inputs]
            tried = found | {t: value() for t, value in zip(tensors, values, strict=True)}
            if passes([check], tried) and passes(earlier, tried):
                found = tried
                break
    return found


def _checks_of_inputs(
    flat: FlatGraph, spec_of: Mapping[str, TensorSpec]
) -> dict[str, list[TensorSpec]]:
    """{op that fails with some inputs: the inputs that it depends on}, where on nothing else."""
    depends: dict[str, frozenset[str] | None] = {name: frozenset({name}) for name in spec_of}
    checks = {}
    for node in flat.graph_def.node:
        own = [depends.get(op_of(name)) for name in data_inputs(node)]
        if node.name in spec_of or None in own or not _is_tried(node, flat.library):
            continue
        depends[node.name] = on = frozenset().union(*(each for each in own if each))
        if node.op in _CHECKS and on:
            checks[node.name] = [spec_of[name] for name in sorted(on)]
    return checks


def _is_tried(node: NodeDef, library: Library) -> bool:
    """Whether an op takes little, and leaves no trace."""
    if node.op in op_types.CONDITIONALS:
        return has_nothing_to_place(node, library)
    is_plain = node.op == "Assert" or not signature_of(node, library).is_stateful
    return is_plain and node.op not in op_types.PLACEHOLDERS and not _LARGE.match(node.op)


def _passing(
    flat: FlatGraph, checks: Mapping[str, Sequence[TensorSpec]]
) -> Callable[[Sequence[str], Arrays], bool]:
    """A function that says whether checks pass with arrays."""
    needed, source = set(checks), flat.graph_def
    graph_def = type(source)(versions=source.versions, library=source.library)
    for node in reversed(source.node):
        if node.name in needed:
            inputs = data_inputs(node)
            needed.update(map(op_of, inputs))
            attrs = {key: value for key, value in node.attr.items() if key != "_class"}
            graph_def.node.add(name=node.name, op=node.op, input=inputs, attr=attrs)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    session = tf.compat.v1.Session(graph=graph, config=config)
    limit = tf.compat.v1.RunOptions(timeout_in_ms=int(_SECONDS * 1000))

    def passes(names: Sequence[str], arrays: Arrays) -> bool:
        fed = {spec.tensor: arrays[spec.tensor] for name in names for spec in checks[name]}
        try:
            session.run([graph.get_operation_by_name(name) for name in names], fed, limit)
        except (tf.errors.OpError, ValueError):
            return False
        return True

    return passes


def _others(spec: TensorSpec, sizes: set[int], make: Make) -> Iterator[Callable[[], np.ndarray]]:
    """What makes other numbers for an input, one kind after the other."""
    kind, first = make(TensorSpec(spec.tensor, spec.dtype, ()), Form()).dtype, partial(make, spec)
    if kind.kind == "b":
        yield from (partial(np.full, spec.shape, value) for value in (True, False))
    elif kind.kind in "iu":
        yield from (partial(first, Form("", limit)) for limit in (10, 2))
        yield from (partial(first, Form(name)) for name in WHOLE)
        for size in sorted(sizes - {0, 1}):
            yield partial(np.full, spec.shape, size, kind)
            yield from (partial(_parts, spec, size, kind, ends) for ends in (True, False))
    elif kind.kind != "O":
        yield from (partial(first, Form(name)) for name in REAL)
        yield from (partial(np.full, spec.shape, value, kind) for value in range(3))
    yield lambda: np.sort(first(Form()), axis=None).reshape(spec.shape)


def _parts(spec: TensorSpec, size: int, kind: DType, ends: bool) -> np.ndarray:
    """So many rows in parts: where these end, the first at 0, or how long each is."""
    shape = spec.shape or ()
    cuts = np.linspace(0, size, math.prod(shape) + (not ends)).astype(kind)
    return (cuts if ends else np.diff(cuts)).reshape(shape)
