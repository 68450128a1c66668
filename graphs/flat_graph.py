"""One run of a model with its function calls opened, whose ops are priced and placed."""

import copy
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from graphs.function_library import library_of
from graphs.protos import GraphDef, Library, Nodes
from graphs.source_model import TensorSpec


class Origin(NamedTuple):
    """The NodeDef in the model that a flat op comes from, and that gets its device string.

    There is one for each op, and dicts of them: a tuple is hashed and compared in C.

    Attributes:
      function: name of the FunctionDef, empty for the main graph.
      node: name of the node there; empty for an op that opening the calls added.
      calls: the chain of functions that leads there, outermost first, `function` last.
    """

    function: str
    node: str
    calls: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class FlatGraph:
    """A GraphDef of single ops, pruned to what the run needs, in a topological order.

    Attributes:
      graph_def: nodes named by their call path; its library holds only what units need.
      origins: one per node of graph_def, in its order.
      feeds: what the run is fed, names of the flat graph.
      fetches: tensors "op:i" and ops "op" of the flat graph.
      unit_of_node: {node: unit} for nodes that can't be placed one by one; a unit is named by
        its head. While, jit_compile calls and conditionals that TensorFlow doesn't lower are
        units of one node; the nodes of a v1 control-flow frame make one unit of many.
      unit_reason: {unit: why it is one}.
      share_of_node: {node: how often it runs in one run}, where that is less than once: in a
        branch of an opened conditional.
      after_of_node: {node: nodes that come before it though no edge says so}. The branches of a
        conditional come one after the other, so that they don't count as if they ran side by side.
      opened: {opened conditional: a sentence that says how it counts}.
    """

    graph_def: GraphDef
    origins: Sequence[Origin]
    feeds: Sequence[TensorSpec]
    fetches: Sequence[str]
    unit_of_node: Mapping[str, str]
    unit_reason: Mapping[str, str]
    share_of_node: Mapping[str, float] = dataclasses.field(default_factory=dict)
    after_of_node: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    opened: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def on_devices(self, devices: Sequence[str]) -> GraphDef:
        """A copy of the GraphDef with device strings, one for each node in its order."""
        placed = copy.deepcopy(self.graph_def)
        for node, device in zip(placed.node, devices, strict=True):
            node.device = device
        return placed

    @functools.cached_property
    def nodes(self) -> Nodes:
        """{name: NodeDef} of graph_def, which must not change while this lives."""
        return {node.name: node for node in self.graph_def.node}

    @functools.cached_property
    def library(self) -> Library:
        """{name: FunctionDef} of graph_def."""
        return library_of(self.graph_def)
