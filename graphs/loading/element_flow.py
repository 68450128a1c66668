"""Follows the elements of a flat graph's inputs to the ops that read them."""

from typing import Any

from graphs import op_types
from graphs.building.constant_values import ConstantValues
from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.names import parse_input

# Of these only the first output holds elements: Unique's second holds positions.
_FIRST_OUTPUT_ONLY = frozenset({"Unique", "UniqueV2"})


class ElementFlow:
    """Where the elements of each tensor go.

    Attributes:
      flat: the graph.
      properties: the shapes of its tensors.
      values: those of its tensors that are constants.
      readers: {tensor: [(node that reads it, position among the node's inputs)]}.
    """

    def __init__(self, flat: FlatGraph, properties: TensorProperties):
        self.flat = flat
        self.properties = properties
        self.values = ConstantValues(flat.nodes, properties)
        self.readers: dict[str, list[tuple[Any, int]]] = {}
        for node in flat.graph_def.node:
            for position, name in enumerate(node.input):
                if not name.startswith("^"):
                    self.readers.setdefault(parse_input(name).tensor, []).append((node, position))

    def passed_on(self, node: Any, position: int) -> list[str]:
        """The outputs of a node that hold the elements of its input at `position`."""
        positions = op_types.ELEMENTS.get(node.op, ())
        if positions is not None and position not in positions:
            return []
        if node.op == "IdentityN":
            return [f"{node.name}:{position}"]
        count = 1 if node.op in _FIRST_OUTPUT_ONLY else len(self.properties.shape_of[node.name])
        return [f"{node.name}:{i}" for i in range(count)]
