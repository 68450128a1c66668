"""The ops that a run reaches, also inside of functions, loops and conditionals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphs.errors import ModelError
from graphs.loading.graph_view import GraphView, callees
from graphs.loading.variable_updates import is_assignment

PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def reachable_ops(view: GraphView, fetches: Iterable[str]) -> Iterator[Any]:
    """NodeDefs that running `fetches` may run, each function's once."""
    pending: list[Sequence[Any]] = [[view.nodes[name] for name in view.ancestors(fetches)]]
    library: Mapping[str, Any] = view.library
    seen: set[str] = set()
    while pending:
        for node in pending.pop():
            yield node
            for name, _ in callees(node, library):
                if name not in seen:
                    seen.add(name)
                    pending.append(library[name].node_def)


def assigns(view: GraphView, fetches: Iterable[str]) -> bool:
    """Whether running `fetches` may change a variable or a table."""
    return any(
        is_assignment(node) or node.op.startswith("LookupTableInsert")
        for node in reachable_ops(view, fetches)
    )


def require_no_python(path: str, view: GraphView, fetches: Iterable[str]) -> None:
    """Makes sure that a run can run in another process than the one that made the model.

    Raises:
      ModelError: it calls Python.
    """
    for node in reachable_ops(view, fetches):
        if node.op in PYTHON_OPS:
            raise ModelError(
                f"reading model {path!r}: its op {node.name!r} ({node.op}) calls Python code of "
                "the process that made the model, which is not in the file; replace "
                "tf.py_function and tf.numpy_function by TensorFlow ops"
            )
