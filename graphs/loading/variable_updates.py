"""Which ops of a graph change variables, and which of them do it as an optimizer does."""

import re
from collections.abc import Iterable, Iterator, Mapping

from graphs import op_types
from graphs.building.op_outputs import op_definition
from graphs.errors import ModelError
from graphs.function_library import callees, reached_functions
from graphs.graph_view import GraphView
from graphs.names import data_inputs, op_of, source_of
from graphs.protos import NodeDef

# ApplyAdam, ResourceApplyAdam, SparseApplyAdagrad, ResourceSparseApplyFtrlV2, ...
_APPLY = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]")
# Gradient descent written by hand and the optimizers of Keras subtract. AssignAdd is not in the
# list, because counters and metrics use it.
_SUBTRACT = op_types.listed("subtracts")
# Batch normalisation subtracts from its moving averages, too, which are not trained.
_MOVING_AVERAGE = re.compile(r"AssignMovingAvg|moving_(mean|variance|average)", re.IGNORECASE)
_ASSIGN = re.compile(
    r"(Resource)?((StridedSlice)?Assign\w*|CountUpTo|Scatter(?!Nd(NonAliasingAdd)?$)\w*)$"
)
# What draws from a tf.random.Generator moves its variable on.
_DRAW = re.compile(r"Rng(ReadAnd)?Skip$|Stateful(Uniform|StandardNormal|TruncatedNormal|Random)")


def is_assignment(node: NodeDef) -> bool:
    """Whether the op writes the variable that is its input 0."""
    return any(pattern.match(node.op) for pattern in (_ASSIGN, _APPLY, _DRAW))


class OptimizerUpdates:
    """Finds {op of the main graph: variable ops that it trains}, also through calls."""

    def __init__(self, view: GraphView):
        self._view = view
        self._positions: dict[str, frozenset[int]] = {}
        self.variables_of: Mapping[str, tuple[str, ...]] = {
            node.name: updated
            for node in view.graph_def.node
            if (updated := self._updated_variables(node)) is not None
        }

    def _updated_variables(self, node: NodeDef) -> tuple[str, ...] | None:
        """The variable ops that a node of the main graph trains; None where it trains nothing."""
        positions = self._updated_positions(node)
        if not positions:
            return None
        inputs = data_inputs(node)
        ops = [self._view.variable_of(inputs[i]) for i in sorted(positions) if i < len(inputs)]
        return tuple(dict.fromkeys(op for op in ops if op))

    def _updated_positions(self, node: NodeDef) -> frozenset[int]:
        """Positions of the inputs that a node trains."""
        subtracts = node.op in _SUBTRACT and not _MOVING_AVERAGE.search(node.name)
        if subtracts or _APPLY.match(node.op):  # the op itself, not what it calls
            return frozenset({0})
        return frozenset(
            first + position
            for name, first in callees(node, self._view.library)
            for position in self._function_positions(name)
        )

    def _function_positions(self, name: str) -> frozenset[int]:
        """Positions of the arguments that a function trains."""
        if name not in self._positions:
            self._positions[name] = frozenset()  # a call of itself in its body adds nothing
            function = self._view.library[name]
            arguments = {each.name: i for i, each in enumerate(function.signature.input_arg)}
            nodes = {node.name: node for node in function.node_def}
            trained = set()
            for node in function.node_def:
                inputs = data_inputs(node)
                for position in self._updated_positions(node):
                    if position < len(inputs):
                        source = source_of(inputs[position], nodes, op_types.SAME)
                        trained.add(arguments.get(op_of(source), -1))
            self._positions[name] = frozenset(trained - {-1})
        return self._positions[name]


def reachable_ops(view: GraphView, fetches: Iterable[str]) -> Iterator[NodeDef]:
    """The NodeDefs that running `fetches` may run; a function's once, however often it runs."""
    main = [view.nodes[name] for name in view.ancestors(fetches)]
    yield from main
    for function in reached_functions(main, view.library):
        yield from view.library[function].node_def


def assigns(view: GraphView, fetches: Iterable[str]) -> bool:
    """Whether running `fetches` may change a variable or a table."""
    return any(
        is_assignment(node) or node.op.startswith("LookupTableInsert")
        for node in reachable_ops(view, fetches)
    )


def require_runnable(path: str, view: GraphView, fetches: Iterable[str]) -> None:
    """Checks that a run needs nothing of the process that made the model.

    Raises:
      ModelError: it uses what Python code of that process returns, or has an op that TensorFlow
        doesn't know.
    """
    for node in reachable_ops(view, fetches):
        if node.op not in view.library:
            op_definition(node.op, node.name)
        if node.op in op_types.PYTHON and node.attr["Tout"].list.type:
            raise ModelError(
                f"reading model {path!r}: its op {node.name!r} ({node.op}) calls Python code of "
                "the process that made the model, which is not in the file; replace "
                "tf.py_function and tf.numpy_function by TensorFlow ops"
            )
