"""Runs a step in float64 from given values of its variables; it is all TensorFlow."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graphs.names import op_of
from graphs.protos import DType, Session, Tensor
from graphs.run_session import read_variables, write_variables
from rewrite.call_graph import without_devices
from rewrite.split.cut_variable import CutVariable
from rewrite.split.float64.convert import Float64Graph, to_float64
from rewrite.split.prove.runs.messages import NO_TABLES, TableStart

v1 = tf.compat.v1
_VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
Arrays = Mapping[str, np.ndarray]


class WideStep:
    """A step in float64.

    Attributes:
      narrow_ops: {op type: how many} that are not run in float64.
      variables: {variable's op: (dtype, shape)}.
    """

    def __init__(
        self,
        graph_def: bytes,
        exact: Mapping[str, float],
        is_wide: bool = True,
        tables: TableStart = NO_TABLES,
        pieces: Mapping[str, tuple[CutVariable, Sequence[str]]] | None = None,
    ):
        """Makes it float64, or leaves its ops in their own types; `tables` stay as they are."""
        self._tables, self._pieces = tables, pieces or {}
        own = v1.GraphDef.FromString(graph_def)
        if is_wide:
            wide = to_float64(own, exact)
        else:
            own = without_devices(own)  # they may be of a cluster that is not here
            wide = Float64Graph(own, Counter(node.op for node in own.node))
        self.narrow_ops = wide.narrow_ops
        self._graph_def = wide.graph_def
        self.variables = {
            node.name: (
                tf.as_dtype(node.attr["dtype"].type),
                tuple(dim.size for dim in node.attr["shape"].shape.dim),
            )
            for node in wide.graph_def.node
            if node.op in _VARIABLES
        }

    def run(
        self, fetches: Sequence[str], feeds: Arrays, start: Arrays, num_steps: int
    ) -> tuple[list[list[np.ndarray]], dict[str, np.ndarray]]:
        """What is fetched in each step, and the variables after the last.

        An input that no op of the step reads is not in its graph.
        """
        known = {node.name for node in self._graph_def.node}
        feeds = {name: array for name, array in feeds.items() if op_of(name) in known}
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Graph().as_default() as graph, v1.Session(graph=graph, config=config) as session:
            v1.import_graph_def(self._graph_def, name="")
            start = {**start}
            for name, (variable, pieces) in self._pieces.items():
                start.update(zip(pieces, variable.cut(start[name]), strict=True))
            write_variables(session, {name: start[name] for name in self.variables})
            self._fill_tables(session)
            fed = {name: _fitting(graph.get_tensor_by_name(name), a) for name, a in feeds.items()}
            fetched = [session.run(list(fetches), fed) for _ in range(num_steps)]
            after = read_variables(session, self.variables)
            for name, (variable, pieces) in self._pieces.items():
                after[name] = variable.joined([after.pop(piece) for piece in pieces])
            return fetched, after

    def _fill_tables(self, session: Session) -> None:
        graph, tables = session.graph, self._tables
        if not tables.ops:
            return
        filling = v1.GraphDef.FromString(tables.graph_def)
        there = {node.name for node in self._graph_def.node}
        names = [f"{n.name}:0" for n in filling.node if "Table" in n.op and n.name in there]
        handles = {name: graph.get_tensor_by_name(name) for name in names}
        v1.import_graph_def(filling, handles, name="tables")
        ops = [graph.get_operation_by_name(f"tables/{op}") for op in tables.ops]
        session.run(ops, {f"tables/{tensor}": path for tensor, path in tables.asset_feeds.items()})


def _fitting(tensor: Tensor, array: np.ndarray) -> np.ndarray:
    """A fed array in the type that its tensor has now."""
    return np.asarray(array).astype(tensor.dtype.as_numpy_dtype)


def random_start(
    variables: Mapping[str, tuple[DType, tuple[int, ...]]], is_signed: bool
) -> dict[str, np.ndarray]:
    """Values of variables that keep numbers in a step of the size that they begin with.

    Matrices and filters are scaled by what is summed over; if they are signed, a second moment
    among them may make its root NaN. Everything else is positive: factors, variances, rates.
    """
    rng = np.random.default_rng(5)
    start = {}
    for name, (dtype, shape) in variables.items():
        value: Any
        if not dtype.is_floating:
            value = np.full(shape, b"", object) if dtype == tf.string else np.zeros(shape)
        elif len(shape) < 2:
            value = rng.uniform(0.3, 0.9, shape) if shape else rng.uniform(0.01, 0.1)
        else:
            value = rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))
            value = value if is_signed else np.abs(value) / np.sqrt(np.prod(shape[:-1]))
        start[name] = np.asarray(value).astype(dtype.as_numpy_dtype)
    return start


def nudged(start: Arrays, epsilon: float) -> dict[str, np.ndarray]:
    """The same values, each float up or down by one rounding error."""
    rng = np.random.default_rng(6)
    return {
        name: np.asarray(value * (1 + epsilon * rng.choice([-1.0, 1.0], value.shape)), value.dtype)
        if value.dtype.kind == "f"
        else value
        for name, value in start.items()
    }
