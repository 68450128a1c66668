"""Proves that the model that was made holds the split step that was proven, and runs nothing else.

The step is proven as one graph of single ops. What is emitted is made of it: the body of a
function, or ops among those of the unsplit step. That is opened again, as any model is, and read
from its outputs backwards, side by side with the step.

Where the step was written op by op under the names that it has, its nodes are the step's, bit by
bit; then there is nothing to open, since equal nodes do the same.

A call that stayed one unit of the unsplit step, since TensorFlow may swap its function, runs a
function of its own for each shard that nothing can be swapped for. Opening opens it: the step is
opened by the same rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from graphs.building.flatten import flatten
from graphs.flat_graph import FlatGraph
from graphs.function_library import library_of
from graphs.names import data_inputs, op_of
from graphs.reached import reached
from graphs.source_model import SourceModel
from rewrite.pass_base import RewriteError
from rewrite.split.build_step import SplitStep
from rewrite.split.same_nodes import (
    ALSO_RUN,
    FREE,
    ORDERING,
    PASSING,
    has_nodes_of,
    is_same_op,
    origin,
)
from rewrite.split.step_outputs import with_outputs


def prove_written(source: SourceModel, step: SplitStep, outputs: Mapping[str, str]) -> None:
    """Compares the run of a model with the split step that it should be.

    Args:
      source: the model with the split step as its run.
      step: the step as it was proven.
      outputs: {Identity op of the step: the fetched tensor "op:i" that it stands for}.

    Raises:
      RewriteError: the model runs something else.
    """
    if has_nodes_of(source, step, outputs):
        return
    named, run = with_outputs(source)
    opened = flatten(run.graph_def, run.feeds, run.fetches, open_conditionals=False)
    proven = flatten(step.graph_def, (), step.fetches, open_conditionals=False)
    pairing = _Pairing(proven, opened)
    found = {tensor: f"{identity}:0" for identity, tensor in named.items()}
    for identity, tensor in outputs.items():
        if tensor not in found:
            raise RewriteError(f"reading the written step: it has no output {tensor!r}")
        pairing.tensor(f"{identity}:0", found[tensor])
    call = op_of(source.fetches[0])
    pairing.follow()
    for name in proven.nodes:
        if pairing.step[name].op not in FREE and name not in pairing.partner:
            pairing.op(name, _of_this_name(name, call, opened))
            pairing.follow()
    pairing.require_same_order({op_of(spec.tensor) for spec in source.feeds})
    pairing.require_nothing_else()
    _require_functions(proven.graph_def, opened.graph_def)


def _of_this_name(name: str, call: str, opened: FlatGraph) -> str:
    """An op that no output needs has its name; in a function it may lie in the call's scope."""
    for there in (name, f"{call}/{name}", f"{call}/{name}_"):
        if there in opened.nodes:
            return there
    raise RewriteError(f"reading the written step: it has lost {name!r}")


class _Pairing:
    """Which op of the written model is which op of the step.

    Attributes:
      step, written: {name: NodeDef} of both.
      partner: {op of the step: op of the written model}.
    """

    def __init__(self, proven: FlatGraph, opened: FlatGraph):
        self.step = proven.nodes
        self.written = opened.nodes
        self.partner: dict[str, str] = {}
        self._taken: set[str] = set()
        self._todo: list[str] = []

    def tensor(self, mine: str, other: str) -> None:
        """Two tensors are the same output of ops that have to be the same."""
        here, there = origin(self.step, mine), origin(self.written, other)
        if here.rpartition(":")[2] != there.rpartition(":")[2]:
            raise RewriteError(f"reading the written step: {there!r} stands for {here!r}")
        self.op(op_of(here), op_of(there))

    def op(self, mine: str, other: str) -> None:
        """Two ops have to be the same."""
        if self.partner.get(mine, other) != other or (
            mine not in self.partner and other in self._taken
        ):
            raise RewriteError(f"reading the written step: {other!r} stands for {mine!r}")
        if mine not in self.partner:
            self.partner[mine] = other
            self._taken.add(other)
            self._todo.append(mine)

    def follow(self) -> None:
        """Reads on from all pairs that were found."""
        while self._todo:
            name = self._todo.pop()
            node, other = self.step[name], self.written[self.partner[name]]
            inputs = data_inputs(node), data_inputs(other)
            if not is_same_op(node, other) or len(inputs[0]) != len(inputs[1]):
                raise RewriteError(
                    f"reading the written step: {other.name!r} is another op than {name!r}"
                )
            for mine, its in zip(*inputs, strict=True):
                self.tensor(mine, its)

    def require_same_order(self, fed: Collection[str]) -> None:
        """What an op of the step waits for, it waits for in the written model.

        What is fed is there before anything runs: an argument of a function is waited for by none.
        """
        for name, there in self.partner.items():
            wanted = {self.partner[each] for each in _waits(self.step, name) if each in self.step}
            missing = wanted - _waits(self.written, there) - {*fed}
            if missing:
                raise RewriteError(
                    f"reading the written step: {there!r} no longer waits for {min(missing)!r}"
                )

    def require_nothing_else(self) -> None:
        """The written model runs no op that is not of the step."""
        for name, node in self.written.items():
            if name not in self._taken and node.op not in ALSO_RUN:
                raise RewriteError(f"reading the written step: it runs {name!r}, too")


def _waits(nodes: Mapping[str, Any], name: str) -> set[str]:
    """The ops that an op, or what hands it its inputs, waits for by control edges."""
    skipped = PASSING | ORDERING
    edges = [op_of(each) for each in nodes[name].input if _is_edge(nodes, each)]
    ops = reached(edges, lambda op: map(op_of, nodes[op].input) if nodes[op].op in skipped else ())
    return {op for op in ops if nodes[op].op not in skipped | {"Const"}}


def _is_edge(nodes: Mapping[str, Any], name: str) -> bool:
    """Whether an input says what to wait for, and maybe nothing else."""
    return name.startswith("^") or nodes[op_of(name)].op in PASSING


def _require_functions(step: Any, written: Any) -> None:
    """The functions that the step runs are those that were proven."""
    there = library_of(written)
    for name, function in library_of(step).items():
        if name in there and there[name] != function:
            raise RewriteError(f"reading the written step: the function {name!r} is another one")
