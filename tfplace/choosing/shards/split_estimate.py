"""What a step takes at least in so many shards, estimated without splitting it.

Reading and pricing a step in as many shards as there are devices takes time that the search of the
unsplit one needs where splitting gains nothing. What becomes of each op is known sooner, and a
price is a constant and a share of the batch's entries: every copy reads whole tensors in full, and
reads and writes partial ones so. That says the work of M shards to a few percent, and no placement
does it in less than all devices together.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from graphs.cluster import Device
from graphs.errors import TfplaceError
from graphs.op_graph import FloatArray, OpGraph
from graphs.pricing.costs import kernel_seconds
from graphs.problem import Problem
from rewrite.split.decide.decide import Decisions
from rewrite.split.decision import Split
from rewrite.split.pieces.choose import travelling
from rewrite.split.states import Partial, State, Whole
from tfplace.algorithms.placers.legal import working_devices
from tfplace.algorithms.placers.one_shot import single_devices
from tfplace.bounds.load_bound import best_weights, load_of
from tfplace.bounds.relaxation import device_classes
from tfplace.choosing.scheduling.list_schedules import path_to_end
from tfplace.grouping.quotient import BoolArray
from tfplace.preparing.prepare import PreparedModel, places_of_shards


@dataclasses.dataclass(frozen=True)
class Copies:
    """What copies take of ops that are split."""

    is_split: BoolArray  # bool[N] which ops get copies
    fixed: FloatArray  # f8[N, D] seconds that each copy takes for whatever it moves in full
    least: FloatArray  # f8[N, D] seconds that a copy takes at least


def least_steps(
    prepared: PreparedModel,
    batch_axes: Mapping[str, int] | None,
    counts: Sequence[int],
    left_whole: Collection[str] = (),
) -> Mapping[int, float]:
    """{number of shards: seconds}; empty where ops were timed, or the step can't be split.

    Args:
      prepared: the unsplit step.
      left_whole: ops that stay one op, though they could be split.
    """
    if prepared.costs.source != "analytic":
        return {}
    try:
        places = places_of_shards(prepared.cluster, max(counts))
        decisions = prepared.to_split.decisions(batch_axes, places, left_whole)
    except TfplaceError:  # reading it says why
        return {}
    copies = copies_of(prepared.problem, prepared.cluster.devices, decisions)
    return {count: _work(prepared.problem, copies, count) for count in counts}


def _work(problem: Problem, copies: "Copies", count: int) -> float:
    """What the devices take at least for so many copies of each op that has any."""
    own = problem.op_seconds
    together = np.maximum(own + (count - 1) * copies.fixed, count * copies.least)
    return _spread(problem, np.where(copies.is_split[:, None], together, own))


MUCH_FASTER = 0.75
"""Fewer pieces than devices are tried first if their step is estimated at so much of the other's:
the estimate has all groups of devices work all the time, and so tells too little."""


def promising_pieces(prepared: PreparedModel, num_devices: int) -> list[tuple[int, float]]:
    """Into how many pieces weights had best be cut: one for each device, or half, a quarter of it.

    Fewer pieces send less, and as many groups of devices may work on layers beside each other. But
    a layer at a time is no faster than its work on that many devices. Where ops were timed it is a
    piece for each device: what copies take is not known.

    Returns:
      The numbers to try, and what the step takes at least in each: its work, or what its parts
      send, in seconds. Nothing for what serves any batch, and would take one.

    Raises:
      UsageError: no weight can be cut so.
    """
    places = places_of_shards(prepared.cluster, num_devices)  # as it is split with, if it is
    decisions = prepared.to_split.decisions(None, places, num_pieces=num_devices)
    if prepared.serves_any_batch and not decisions.takes_any_batch:
        return []
    problem = prepared.problem
    if prepared.costs.source != "analytic":
        return [(num_devices, seconds_to_send(problem, decisions))]
    copies = copies_of(problem, prepared.cluster.devices, decisions)
    ops = np.arange(problem.num_ops)
    alone = min(single_devices(problem), key=lambda each: problem.op_seconds[ops, each].sum())
    path = path_to_end(problem, alone).max()
    spread = _work(problem, copies, num_devices)
    sizes, (rate, latency) = travelling(decisions.facts.flat, decisions), _usual_link(problem)

    def estimated(count: int) -> float:
        sent = (count - 1.0) * (len(sizes) * latency + sum(sizes) / count / rate)
        return max(spread, path / count) + sent * count / num_devices

    counts = [num_devices]
    while counts[-1] % 2 == 0 and counts[-1] > 2:
        counts.append(counts[-1] // 2)
    best = min(counts, key=estimated)
    wanted = [num_devices, best]
    if estimated(best) < MUCH_FASTER * estimated(num_devices):
        wanted.reverse()
    sent = _seconds_to_send(problem, sizes)
    return [(each, max(_work(problem, copies, each), sent)) for each in dict.fromkeys(wanted)]


def seconds_to_send(problem: Problem, decisions: Decisions) -> float:
    """What the parts of a split step send at least, each over a link of its own."""
    return _seconds_to_send(problem, travelling(decisions.facts.flat, decisions))


def _seconds_to_send(problem: Problem, sizes: Sequence[int]) -> float:
    share = 1.0 - 1.0 / len(working_devices(problem))
    return sum(sizes) * share / _usual_link(problem)[0]


def _usual_link(problem: Problem) -> tuple[float, float]:
    """Bytes a second, and seconds of a transfer, of the link between two devices that compute."""
    devices = working_devices(problem)
    between = np.ix_(devices, devices)
    others = ~np.eye(len(devices), dtype=bool)
    rates = problem.link_bytes_per_second[between][others]
    return float(np.median(rates)), float(np.median(problem.link_latency[between][others]))


def copies_of(problem: Problem, devices: Sequence[Device], decisions: Decisions) -> Copies:
    """What each op's copies take of what it takes itself; its price is computed, not timed."""
    graph, own = problem.graph, problem.op_seconds
    answers = decisions.answer_of_op
    is_split = np.array([isinstance(answers.get(name), Split) for name in graph.op_names], bool)
    num_bytes = _bytes_in_full(graph, decisions)
    nothing = np.zeros(len(num_bytes))
    fixed, least = np.zeros_like(own), np.zeros_like(own)
    for d, device in enumerate(devices):
        launches = np.ones(len(num_bytes), bool)
        fixed[:, d] = kernel_seconds(nothing, num_bytes, ~launches, device)
        least[:, d] = kernel_seconds(nothing, nothing, launches, device)
    priced = np.where(np.isfinite(own), own, 0.0)  # no copy takes longer than the whole op
    return Copies(is_split, np.minimum(fixed, priced), np.minimum(least, priced))


def states_of(graph: OpGraph, decisions: Decisions) -> list[State | None]:
    """[T] of each tensor of the unsplit step in the split one; None where it has none."""
    outputs = zip(graph.tensor_producer.tolist(), graph.tensor_output.tolist(), strict=True)
    known = decisions.state_of_tensor
    return [known.get(f"{graph.op_names[op]}:{output}") for op, output in outputs]


def work_of_devices(problem: Problem) -> list[float]:
    """[W] seconds on each working device of all ops that have a kernel on every one of them."""
    seconds = problem.op_seconds[:, working_devices(problem)]
    return seconds[np.isfinite(seconds).all(axis=1)].sum(axis=0).tolist()


def _bytes_in_full(graph: OpGraph, decisions: Decisions) -> FloatArray:
    """f8[N]: of the whole tensors that an op reads, and of the partial ones it reads or makes."""
    states = states_of(graph, decisions)
    is_partial = np.array([isinstance(state, Partial) for state in states], bool)
    in_full = is_partial | np.array([isinstance(state, Whole) for state in states], bool)
    read = np.where(in_full, graph.tensor_bytes, 0)[graph.use_tensor]
    made = np.where(is_partial, graph.tensor_bytes, 0)
    num_bytes = np.bincount(graph.use_op, read, graph.num_ops)
    num_bytes += np.bincount(graph.tensor_producer, made, graph.num_ops)
    return num_bytes.astype(np.float64)


def _spread(problem: Problem, seconds: FloatArray) -> float:
    """What the devices take at least for ops of f8[N, D] seconds."""
    classes = device_classes(dataclasses.replace(problem, op_seconds=seconds))
    everything = load_of(classes, problem.graph, np.ones(problem.num_ops, bool))
    return best_weights(everything)[0]
