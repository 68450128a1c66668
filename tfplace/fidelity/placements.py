"""Placements to judge a predictor by: random, structured and optimised ones."""

import dataclasses
import itertools
import re
from collections.abc import Iterator

import numpy as np

from graphs.op_graph import IntArray
from graphs.problem import Measurement, Problem
from tfplace.algorithms.placers.legal import legal, working_devices
from tfplace.algorithms.table import policy_of
from tfplace.grouping.coarsen import coarsen
from tfplace.grouping.quotient import fastest_seconds
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, Stage, search
from tfplace.simulation.evaluator import SimulatingEvaluator

KINDS = ("single", "optimised", "structured", "random")
RANDOM_GROUPS: tuple[tuple[int | None, float], ...] = (
    (8, 0.5), (None, 0.5), (32, 0.3), (1000, 0.5), (None, 0.1), (128, 0.5), (300, 0.15),
    (None, 0.3), (16, 0.5), (2000, 0.3),
)  # fmt: skip
"""Groups (None: every op for itself) and the share of them on other devices than the first: from
few transfers to as many as there can be, so that step times of one model differ by a factor."""
CUT_SHARES = (0.5, 0.25, 0.9, 0.75, 0.1)
"""What share of a step's seconds the first device gets where it is cut once."""
STRIPES = (4, 64, 16, 256)
"""Into how many pieces of equal seconds a step is cut, which go to the devices in turn."""
ANNEALED = ((3000, 1.0), (1000, 4.0), (300, 1.0), (1000, 16.0), (100, 1.0), (100, 4.0))
"""Trials, and how much slower links are taken to be: better and worse, few and many transfers."""
ONE_SHOTS = ("etf", "metis", "heft")
SEARCH_SECONDS = 30.0
OTHER_SEED = 7919
"""Added to a seed for placements that differ from those of it."""
MAX_MISSES = 20
"""For each kind, placements one after another that were there before or can't run: none is left."""

_GRADIENTS = re.compile(r"^(gradients(_\d+)?|gradient_tape)/")


@dataclasses.dataclass(frozen=True)
class PlacementToJudge:
    """A placement of which the predicted step time is compared with the measured one."""

    kind: str  # one of KINDS
    name: str  # how it was made
    device_of_op: IntArray  # i4[N]


def placements_to_judge(instance: Instance, count: int, seed: int) -> list[PlacementToJudge]:
    """Distinct placements that are predicted to run.

    The first is the best single device; then optimised, structured and random ones in turn, so
    that any count has all kinds; random ones make up for what the others lack. The first
    optimised one is the best that annealing finds.

    Args:
      count: how many, >= 1; fewer come back where a graph has no more that differ.
      seed: of random and annealed ones.
    """
    evaluator = SimulatingEvaluator(instance.problem)
    sources = [
        _optimised(instance, seed),
        structured_placements(instance.problem),
        _random(instance.problem, seed),
    ]
    single = PlacementToJudge("single", "single", best_of_algorithm(instance, "single", 1, 0))
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*sources))
    chosen: dict[bytes, PlacementToJudge] = {}
    misses = 0
    for made in itertools.chain([single], filter(None, in_turn)):
        key = made.device_of_op.tobytes()
        outcome = evaluator.evaluate(made.device_of_op[None])[0]
        if key in chosen or not isinstance(outcome, Measurement):
            misses += 1
        else:
            chosen[key], misses = made, 0
        if len(chosen) == count or misses == MAX_MISSES * len(KINDS):
            break
    return list(chosen.values())


def placements_to_learn_from(instance: Instance, seed: int) -> list[PlacementToJudge]:
    """A few different ones that `placements_to_judge` has not, but for the single device."""
    single = PlacementToJudge("single", "single", best_of_algorithm(instance, "single", 1, 0))
    other = seed + OTHER_SEED
    made = [
        single,
        *itertools.islice(_optimised(instance, other), 0, 3, 2),  # those that are annealed
        *itertools.islice(_random(instance.problem, other), 3),
    ]
    outcomes = SimulatingEvaluator(instance.problem).evaluate(
        np.array([each.device_of_op for each in made])
    )
    runs = [isinstance(outcome, Measurement) for outcome in outcomes]
    return [each for each, can_run in zip(made, runs, strict=True) if can_run]


def layer_of_op(problem: Problem) -> IntArray:
    """i4[N]: an op's first name scope, gradients counted to the layer that they are of.

    Layers are numbered by their first op in topological order.
    """
    layers = [_GRADIENTS.sub("", name).split("/")[0] for name in problem.graph.op_names]
    number: dict[str, int] = {}
    return np.array([number.setdefault(layer, len(number)) for layer in layers], dtype=np.int32)


def _optimised(instance: Instance, seed: int) -> Iterator[PlacementToJudge]:
    """Annealed placements and those of one-shot heuristics, in turn."""
    shots = iter(ONE_SHOTS)
    for position, (trials, factor) in enumerate(ANNEALED):
        problem = dataclasses.replace(
            instance.problem,
            link_latency=instance.problem.link_latency * factor,
            link_bytes_per_second=instance.problem.link_bytes_per_second / factor,
        )
        slower = dataclasses.replace(instance, problem=problem)
        name = f"annealing, {trials} trials, links x{1 / factor:g}"
        yield PlacementToJudge(
            "optimised", name, best_of_algorithm(slower, "local_search", trials, seed + position)
        )
        if shot := next(shots, None):
            yield PlacementToJudge("optimised", shot, best_of_algorithm(instance, shot, 1, seed))


def best_of_algorithm(instance: Instance, algorithm: str, max_trials: int, seed: int) -> IntArray:
    """The best placement of a search in the simulator, the given one where there is none."""
    policy = policy_of(algorithm, instance, seed, None)
    limits = Limits(SEARCH_SECONDS, max_trials)
    stage = Stage(algorithm, lambda best: policy)
    result = search([stage], SimulatingEvaluator(instance.problem), limits)
    if result.interrupted:
        raise KeyboardInterrupt
    return instance.given if result.best is None else result.best.placement.device_of_op


def structured_placements(problem: Problem) -> Iterator[PlacementToJudge]:
    """What a person may try: cuts of the topological order, layers apart, stripes, alternation."""
    devices = working_devices(problem)
    seconds = np.cumsum(fastest_seconds(problem, problem.allowed()))
    position = seconds / max(seconds[-1], 1e-30)
    layer = layer_of_op(problem)
    own = np.bincount(layer, weights=np.diff(position, prepend=0.0))
    share_of_layer: np.ndarray = np.cumsum(own) - own / 2  # of all seconds, with those before it
    wanted: list[tuple[str, IntArray]] = []
    for share in CUT_SHARES:
        piece = np.digitize(position, _borders(share, len(devices)))
        wanted.append((f"topological cut at {share:.0%}", piece))
        piece = np.digitize(share_of_layer[layer], _borders(share, len(devices)))
        wanted.append((f"layers cut at {share:.0%}", piece))
    wanted.insert(2, ("layers in turn", layer))
    stripes = [(f"{n} stripes", np.minimum((position * n).astype(int), n - 1)) for n in STRIPES]
    for name, piece in [*wanted[:3], *stripes, *wanted[3:]]:
        place = devices[np.asarray(piece) % len(devices)]
        yield PlacementToJudge("structured", name, legal(problem, place))


def _borders(share: float, num_devices: int) -> np.ndarray:
    """f8[D - 1]: the first device gets `share`, the others the rest in equal parts."""
    return share + (1.0 - share) * np.arange(num_devices - 1) / max(num_devices - 1, 1)


def _random(problem: Problem, seed: int) -> Iterator[PlacementToJudge]:
    """A random device for each of few, or of many, minimum-cut groups, or for each op."""
    rng = np.random.default_rng(seed)
    devices = working_devices(problem)
    for draw, (num_groups, share) in enumerate(itertools.cycle(RANDOM_GROUPS)):
        group: IntArray = np.arange(problem.num_ops, dtype=np.int32)
        words = "random ops"
        if num_groups is not None:
            group = coarsen(
                problem, min(num_groups, max(problem.num_ops, 1)), seed + draw
            ).group_of_op
            words = f"{num_groups} random groups"
        elsewhere = rng.integers(1, max(len(devices), 2), problem.num_ops)
        drawn = np.where(rng.random(problem.num_ops) < share, elsewhere, 0) % len(devices)
        name = f"{words}, {share:.0%} elsewhere"
        yield PlacementToJudge("random", name, legal(problem, devices[drawn[group]]))
