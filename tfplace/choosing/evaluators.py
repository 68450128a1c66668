"""Which evaluator answers a search: the simulator, or real runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from graphs.errors import ClusterError
from tfplace.measurement.measuring_evaluator import MeasuringEvaluator
from tfplace.preparing.prepare import PreparedModel
from tfplace.search.trial import Evaluator
from tfplace.simulation.evaluator import SimulatingEvaluator


@contextlib.contextmanager
def evaluator_for(kind: str, prepared: PreparedModel) -> Iterator[Evaluator]:
    """The evaluator that --evaluator names; "auto" searches in the simulator.

    Raises:
      ClusterError: "measure", but the devices are not here.
    """
    if kind != "measure":
        yield SimulatingEvaluator(prepared.problem)
        return
    if not prepared.is_present:
        raise ClusterError(
            f"measuring on {prepared.cluster.name}: its devices are not present on this machine; "
            "search with --evaluator=simulate, or name a --cluster that is here"
        )
    run, op_of_node = prepared.opened_run(), prepared.built.op_of_node
    with MeasuringEvaluator(prepared.flat, op_of_node, run, prepared.cluster) as evaluator:
        yield evaluator
