"""A split step: what `build` makes, what `write` puts into a model and what `prove` checks."""

import dataclasses
from collections.abc import Mapping, Sequence

from graphs.protos import GraphDef
from rewrite.split.cut_variable import CutVariable


@dataclasses.dataclass(frozen=True)
class SplitStep:
    """A split step.

    Attributes:
      graph_def: its ops, named as in the unsplit one; the copy of a/b for shard m is a/b/shard_m,
        or the like where the model has an op of that name.
      fetches: what to fetch instead of the unsplit step's fetches, in their order.
      origin_of: {op of the split step: op of the unsplit one that it stands for}; ops that join,
        sum or cut a tensor stand for the op that made it.
      copies: {op of the unsplit step: its copies, one for each shard; for an op that says several
        shapes what says each of them}.
      num_joins: tensors whose parts are joined.
      num_sums: tensors whose terms are combined.
      num_cuts: whole tensors that are cut into parts.
      pieces: {VarHandleOp of a variable in pieces: how it is cut, the VarHandleOps of its pieces}.
    """

    graph_def: GraphDef
    fetches: Sequence[str]
    origin_of: Mapping[str, str]
    copies: Mapping[str, Sequence[str]]
    num_joins: int
    num_sums: int
    num_cuts: int
    pieces: Mapping[str, tuple[CutVariable, Sequence[str]]] = dataclasses.field(
        default_factory=dict
    )
