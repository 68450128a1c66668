"""The ops that a run reaches, those inside functions, loops and conditionals too."""

from collections.abc import Iterable, Iterator
from typing import Any

from graphs import op_types
from graphs.building.op_outputs import op_definition
from graphs.errors import ModelError
from graphs.function_library import reached_functions
from graphs.graph_view import GraphView
from graphs.loading.variable_updates import is_assignment


def reachable_ops(view: GraphView, fetches: Iterable[str]) -> Iterator[Any]:
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
