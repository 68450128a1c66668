"""What if prices were off: would the placement still lead, where the hardware is not here?

Prices of GPUs are mostly within a quarter of what others have measured, and links within a factor
of two. So the placement, and the best that it is compared with, are simulated again with links half
and twice as fast, and with the ops of one class at a time 1.5 times as slow and as quick.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np

from graphs.op_graph import IntArray
from graphs.pricing.kernel_classes import class_of_op
from graphs.problem import Measurement, Problem
from graphs.protos import JsonObject
from tfplace.algorithms.annealing.config import LARGE_OPS
from tfplace.choosing.baselines import best_of
from tfplace.choosing.outcomes import Decided
from tfplace.simulation.simulated import Simulated, simulated

PRICE_FACTOR, LINK_FACTOR = 1.5, 2.0
COMPARED = ("given", "single")
Change = Callable[[Problem], Problem]


def sensitivity(decided: Decided, placed: Simulated) -> JsonObject | None:
    """report.json's `sensitivity`.

    Returns:
      None where the devices are present, so that real runs decide, or nothing leads; and of more
      than LARGE_OPS, each of whose simulations takes long.
    """
    prepared, searched = decided.prepared, decided.searched
    beside = (prepared.problem, searched.baselines)
    if searched.unsplit is not None:
        beside = (searched.unsplit.problem, searched.unsplit.baselines)
    problem, baselines = beside
    rival = best_of([each for each in baselines if each.name in COMPARED])
    is_asked = decided.choice.verdict == "placed" and not prepared.is_present
    if rival is None or not is_asked or placed.problem.num_ops > LARGE_OPS:
        return None
    cases = [
        {
            "what": what,
            "step_seconds": _seconds(change(placed.problem), placed.device_of_op),
            "baseline_step_seconds": _seconds(change(problem), rival.device_of_op),
        }
        for what, change in _changes()
    ]
    shares = {
        str(case["what"]): float(case["step_seconds"]) / float(case["baseline_step_seconds"])  # type: ignore[arg-type]
        for case in cases
    }
    worst = max(shares, key=shares.__getitem__)
    low, high = min(shares.values()), shares[worst]
    of = "one device's" if rival.name == "single" else "the given placement's"
    sentence = (
        f"with links from 0.5 to 2 times as fast, or the ops of a class {PRICE_FACTOR:g} times as "
        f"slow or as quick, {low:.2f} to {high:.2f} of {of} step"
    )
    if not high < 1.0:
        takes = f"it takes {high:.2f} of {of} step" if high < math.inf else "it no longer fits"
        sentence = f"not sure: with {worst} {takes}"
    return {"cases": cases, "holds": high < 1.0, "sentence": sentence}


def _seconds(problem: Problem, device_of_op: IntArray) -> float:
    outcome = simulated(problem, device_of_op).outcome
    return outcome.step_seconds if isinstance(outcome, Measurement) else float("inf")


def _changes() -> Iterator[tuple[str, Change]]:
    for speed in (1.0 / LINK_FACTOR, LINK_FACTOR):
        yield f"links {speed:g} times as fast", _with_links(speed)
    for name in ("products", "convolutions", "other ops"):
        for factor in (PRICE_FACTOR, 1.0 / PRICE_FACTOR):
            kind = "slow" if factor > 1.0 else "quick"
            yield f"{name} {PRICE_FACTOR:g} times as {kind}", _with_ops(name, factor)


def _with_links(speed: float) -> Change:
    return lambda problem: dataclasses.replace(
        problem,
        link_bytes_per_second=problem.link_bytes_per_second * speed,
        link_latency=problem.link_latency / speed,
    )


def _with_ops(name: str, factor: float) -> Change:
    def change(problem: Problem) -> Problem:
        is_one = np.array([_class_named(each) == name for each in problem.graph.op_types])
        seconds = np.where(is_one[:, None], problem.op_seconds * factor, problem.op_seconds)
        return dataclasses.replace(problem, op_seconds=seconds)

    return change


def _class_named(op_type: str) -> str:
    found = class_of_op().get(op_type, "")
    if found == "product":
        return "products"
    return "convolutions" if found.startswith("convolution") else "other ops"
