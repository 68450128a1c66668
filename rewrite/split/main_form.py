"""A function's body in the form of a main graph; `function_body` goes the other way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphs.building.op_outputs import output_names
from rewrite.pass_base import RewriteError


class MainForm:
    """A function's ops and results, with the names that inputs have in a main graph.

    Attributes:
      nodes: {name: NodeDef}.
      results: what the function returns.
    """

    def __init__(self, function: Any, library: Mapping[str, Any], given: Mapping[str, str]):
        """Begins and ends.

        Args:
          function: a FunctionDef.
          library: all functions.
          given: {argument: the op that stands for it}.
        """
        self._given, self._positions = given, dict[str, list[str]]()
        for node in function.node_def:
            self._positions[node.name] = output_names(node, library)
        self.nodes: dict[str, Any] = {}
        for node in function.node_def:
            new = self.nodes[node.name] = type(node)()
            new.CopyFrom(node)
            new.input[:] = [self._name(name) for name in node.input]
        if len(self.nodes) < len(function.node_def):
            raise RewriteError("reading a shard's function: two of its ops have one name")
        outputs = [each.name for each in function.signature.output_arg]
        if set(function.ret) != set(outputs):
            raise RewriteError("reading a shard's function: it returns something else")
        self.results = [self._name(function.ret[name]) for name in outputs]

    def _name(self, name: str) -> str:
        if name.startswith("^"):
            return name
        op, _, output = name.partition(":")
        if not output:
            return self._given.get(op, op)
        names = self._positions.get(op, [])
        output = output if ":" in output else f"{output}:0"
        if output not in names:
            raise RewriteError(f"reading a shard's function: there is no {name!r}")
        return f"{op}:{names.index(output)}".removesuffix(":0")
