"""Proves that a split step reads, joins, sums, cuts and waits where what was decided says so.

Every op of the unsplit step must be there exactly once, whole or in M copies, with its attributes
but for those that were decided; each copy must read its own parts, or whole tensors; whatever else
there is must be a join, a sum, a cut, a weight or a number that makes one of these of another.
Nothing of `build_step` is used but which ops it says are the copies of which.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from graphs.building.shapes import TensorProperties
from graphs.errors import ModelError
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from rewrite.pass_base import RewriteError
from rewrite.split.build_step import SplitStep
from rewrite.split.decide import Decisions
from rewrite.split.op_cases import bodies_of
from rewrite.split.op_checks import OpChecks
from rewrite.split.prove_bodies import BodyProver
from rewrite.split.states import shard_sizes
from rewrite.split.step_reading import StepReading


@dataclasses.dataclass(frozen=True)
class JointsProof:
    """What stands in a split step.

    Attributes:
      whole_ops: ops that are there once.
      split_ops: ops that are there once per shard.
      joins, sums, cuts: tensors that are joined, combined, cut.
      exact: {constant: the share of the batch that it is rounded from}.
      batches: at which batch sizes that was read.
    """

    whole_ops: int
    split_ops: int
    joins: int
    sums: int
    cuts: int
    exact: Mapping[str, float]
    batches: Sequence[int]


def prove_joints(
    flat: FlatGraph, properties: TensorProperties, decisions: Decisions, step: SplitStep, count: int
) -> JointsProof:
    """Compares a split step with the unsplit one and what was decided.

    Numbers are compared at the batch size of `properties` and `decisions`; a step that takes any
    size is proven for another one by asking again with those of that size.

    Args:
      flat: the unsplit step.
      properties: of its tensors.
      decisions: what becomes of each op.
      step: the split step, before it is placed.
      count: into how many shards it is split.

    Raises:
      RewriteError: an op is missing, or something reads, joins, sums, cuts or waits otherwise.
    """
    graph_def = step.graph_def
    if len({node.name for node in graph_def.node}) < len(graph_def.node):
        raise RewriteError("reading a split step: two of its ops have one name")
    if not _has_its_functions(flat, decisions, graph_def):
        raise RewriteError("reading a split step: its functions are not those that it had")
    sizes = shard_sizes(decisions.batch, count)
    try:
        reading = StepReading(flat, properties, decisions, graph_def, sizes, step.copies)
        bodies = BodyProver(library_of(graph_def), sizes)
        checks = OpChecks(decisions, reading, bodies)
        for node in flat.graph_def.node:
            checks.op(node)
        for before, after in zip(flat.fetches, step.fetches, strict=True):
            checks.fetch(before, after)
    except (
        ModelError,
        ValueError,
        TypeError,
        LookupError,
    ) as error:  # what no op of a sound graph raises
        raise RewriteError(f"reading a split step: it makes no sense: {error}") from error
    found = reading.reader.found
    return JointsProof(
        len(flat.nodes) - len(reading.copies), len(reading.copies),
        len(found["join"]), len(found["sum"]), len(found["cut"]), reading.reader.exact,
        [decisions.batch],
    )  # fmt: skip


def _has_its_functions(flat: FlatGraph, decisions: Decisions, graph_def: Any) -> bool:
    """Whether all functions are as they were; only copies of loops and calls may have more."""
    before, after = flat.graph_def, graph_def
    if any(bodies_of(answer) for answer in decisions.answer_of_op.values()):
        there = library_of(after)
        return all(there.get(name) == function for name, function in flat.library.items())
    return bool(before.library == after.library and before.versions == after.versions)
