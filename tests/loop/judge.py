"""One row: `tfplace optimize`, and then what it has written, measured afresh beside others."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphs.machine_numbers import START
from graphs.op_graph import FloatArray, IntArray
from graphs.placement_file import read_placement
from graphs.problem import Infeasible
from graphs.problem_file import read_problem
from tests.loop.noise import noise
from tests.loop.other import OTHER, place_by_other, read_by_name
from tests.loop.result import WRITTEN, Judged
from tests.loop.rows import ROWS
from tests.rival.compare import report_of, run_module
from tests.rival.contestant import RivalError
from tfplace.algorithms.placers.data_parallel import data_parallel
from tfplace.choosing.scheduling.model_order import with_order
from tfplace.fidelity.placements import best_of_algorithm, placements_to_judge
from tfplace.fidelity.study import agreement, measured_steps, rounds
from tfplace.measurement.run_measurement import Timings, measure_variants
from tfplace.measurement.training_run import StepLimits
from tfplace.preparing.on_known_machine import FOLDER
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import PreparedModel, prepare
from tfplace.search.instance import Instance
from tfplace.simulation.simulator import Simulator

CLUSTER = "workers:2"
BASELINES = {"single": "single", "minimum cut": "metis", "m-ETF": "etf"}
"""{way: algorithm} of the step as it came."""
DATA_PARALLEL = "data parallel"
Ways = dict[str, tuple[PreparedModel, IntArray]]
"""{way: the step, split or not, and its placement}."""
_RANKED_RUNS = 9
_COSTS = "costs"


@dataclasses.dataclass(frozen=True)
class JudgeOptions:
    """How to judge.

    Attributes:
      folder: where models and what tfplace made of them lie; what is there is not made again.
      optimize_flags: of `tfplace optimize`, beside --cluster=workers:2.
      seconds: of the steps of what was written and its rivals.
      num_ranked: placements whose predicted order is compared with the measured one.
      other_checkout: of tfplace, whose own choice is measured beside; None for none.
    """

    folder: Path
    optimize_flags: Sequence[str] = ("--budget_seconds=60",)
    seconds: float = 30.0
    num_ranked: int = 10
    other_checkout: Path | None = None


def judge(name: str, share: float, options: JudgeOptions, say: Callable[[str], None]) -> Judged:
    """One model, with a program beside it that takes a share of one core.

    Raises:
      RivalError: the model could not be made or placed.
    """
    row, folder = ROWS[name], options.folder / f"{name}_{share:g}"
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / row.file
    if not model.exists():
        run_module([*row.making, str(model)])
    clock = _Clock(name, say)
    with noise(share):
        clock.begin("tfplace optimize")
        took = _placed(model, folder, options)
        if options.other_checkout is not None:
            clock.begin("the other checkout's optimize")
        other = _other(model, folder, options)
        clock.begin("preparing what it is compared with")
        written = _Written(model, folder)
        ways, failed = written.ways(other)
        clock.begin(f"steps of {len(ways)} ways by turns")
        runs, could_not = written.timed(ways, options.seconds)
        clock.begin(f"{options.num_ranked} placements, predicted and measured")
        ranks = written.ranked(options.num_ranked)
    failed = {**failed, **could_not}
    predicted = written.predicted_seconds
    took_stages = clock.end()
    return Judged(name, share, took, written.report, runs, failed, predicted, ranks, took_stages)


class _Clock:
    """Says what begins, and how long each stage took."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name, self._say = name, say
        self._began: dict[str, float] = {}

    def begin(self, stage: str) -> None:
        self._say(f"{self._name}: {stage}")
        self._began[stage] = time.monotonic()

    def end(self) -> dict[str, float]:
        """{stage: seconds}."""
        ends = [*list(self._began.values())[1:], time.monotonic()]
        return {
            stage: end - began
            for (stage, began), end in zip(self._began.items(), ends, strict=True)
        }


def _other(model: Path, folder: Path, options: JudgeOptions) -> Path | RivalError | None:
    """What the other checkout has placed, or why it could not."""
    if options.other_checkout is None:
        return None
    flags = options.optimize_flags
    try:
        return place_by_other(options.other_checkout, model, folder, CLUSTER, flags)
    except RivalError as error:
        return error


def _placed(model: Path, folder: Path, options: JudgeOptions) -> float | None:
    """Places the model unless that was done before; seconds that it took."""
    placed = folder / "placed"
    if placed.exists():
        return None
    began = time.monotonic()
    words = ["tfplace", "optimize", str(model), f"--cluster={CLUSTER}", *options.optimize_flags]
    words += [f"--output_dir={placed}", f"--dump_problem={folder / 'corrected.npz'}"]
    said = run_module([*words, f"--cost_cache_dir={folder / _COSTS}"])  # a machine's first run
    (folder / "optimize.txt").write_text(said)
    return time.monotonic() - began


class _Written:
    """What `optimize` has written, ready to run again."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.report: Mapping[str, Any] = report_of(str(folder / "placed"))
        self._same: dict[str, str] = {}
        self._dumped = folder / "corrected.npz"
        split, order = self.report["split"], "edges" if self.report["order"] else "none"
        self._options = ProblemOptions(
            str(model),
            cluster=_known_cluster(folder),
            cost_cache=str(folder / _COSTS),
            num_shards=1 if split is None else split["shards"],
        )
        self.prepared = with_order(prepare(self._options, trace=False), order)
        self.device_of_op = read_placement(
            str(folder / "placed" / "assets.extra" / "tfplace" / "placement.json"),
            self.prepared.problem.graph.op_names,
            self.prepared.problem.device_names,
            self.prepared.given,
        )

    @property
    def _is_single(self) -> bool:
        return bool(self.report["verdict"] == "kept_single")

    @property
    def predicted_seconds(self) -> float:
        """The written placement's step, as the corrected simulator says it."""
        return float(self.report["best"]["step_seconds"]) + self._beside(self.device_of_op)

    def ways(self, other: Path | RivalError | None) -> tuple[Ways, dict[str, str]]:
        """What is measured beside what was written, and {way: why} of what can't be."""
        whole = prepare(dataclasses.replace(self._options, num_shards=1))
        ways, failed = {WRITTEN: (self.prepared, self.device_of_op), **self._baselines(whole)}, {}
        if other is not None:
            try:
                if isinstance(other, RivalError):
                    raise other
                placed = read_by_name(other, whole)
                if (same := self._alike(placed, ways)) is None:
                    ways[OTHER] = whole, placed
                else:
                    self._same[OTHER] = same
            except RivalError as error:
                failed[OTHER] = str(error)
        return ways, failed

    def _alike(self, placed: IntArray, ways: Ways) -> str | None:
        """The way that places the unsplit step the same, if there is one."""
        if len(np.unique(placed)) == 1:
            return WRITTEN if self._is_single else "single"
        for way, (prepared, device_of_op) in ways.items():
            if prepared.split is None and np.array_equal(device_of_op, placed):
                return way
        return None

    def timed(self, ways: Ways, seconds: float) -> tuple[dict[str, FloatArray], dict[str, str]]:
        """{way: f8[runs]} of steps by turns, and {way: why} of those that can't run."""
        graphs = {name: each.placed_run_graph(placed) for name, (each, placed) in ways.items()}
        runs = {name: each.training_run() for name, (each, _) in ways.items()}
        limits = StepLimits(min_steps=10, max_steps=200, budget_seconds=seconds)
        results = measure_variants(graphs, runs, self.prepared.cluster, limits)
        return _apart({**results, **{way: results[same] for way, same in self._same.items()}})

    def ranked(self, count: int) -> dict[str, Any]:
        """How well the corrected simulator orders placements that were measured now."""
        if self.prepared.order is not None:  # the dumped problem holds one placement's order
            return {}
        problem, _ = read_problem(str(self._dumped))
        chosen = placements_to_judge(Instance(problem, self.prepared.given), count, seed=1)
        placements = [each.device_of_op for each in chosen] + [self.device_of_op]
        limits = rounds(_RANKED_RUNS, seed=0)
        timed = measured_steps(self.prepared, placements, limits, lambda what: None)
        ran = {i: each.step_seconds for i, each in enumerate(timed) if isinstance(each, Timings)}
        makespans, _ = Simulator(problem, num_threads=1).run_many(np.array(placements))
        predicted = [makespans[i] + self._beside(placements[i]) for i in ran]
        found = agreement(predicted, [np.median(each) for each in ran.values()], [*ran.values()])
        return {**dataclasses.asdict(found), "placements": len(ran)}

    def _beside(self, device_of_op: IntArray) -> float:
        """What a measured step has beside its makespan."""
        rounds_made, cluster = self.report["rounds"], self.prepared.cluster
        is_taught = not rounds_made or START in cluster.taught  # then the cluster's dispatch has it
        start = 0.0 if is_taught else rounds_made[-1]["corrected"][START][0]
        num_fetched = sum(":" in fetch for fetch in self.prepared.flat.fetches)
        return float(start + cluster.dispatch_seconds(device_of_op, num_fetched))

    def _baselines(self, whole: PreparedModel) -> Ways:
        found = {
            way: (whole, best_of_algorithm(whole.instance, algorithm, 8, 0))
            for way, algorithm in BASELINES.items()
        }
        if self._is_single:  # equal devices tie: measured as one, it is no slower than itself
            del found["single"]
            self._same["single"] = WRITTEN
        devices = whole.problem.num_devices
        split = prepare(dataclasses.replace(self._options, num_shards=devices), trace=False)
        return {**found, DATA_PARALLEL: (split, data_parallel(split.problem))}


def _known_cluster(folder: Path) -> str:
    """The cluster as `optimize` measured it, or as it is assumed."""
    files = sorted((folder / _COSTS / FOLDER).glob("*.json"))
    return str(files[0]) if files else CLUSTER


def _apart(
    results: Mapping[str, Timings | Infeasible],
) -> tuple[dict[str, FloatArray], dict[str, str]]:
    ran = {name: each.step_seconds for name, each in results.items() if isinstance(each, Timings)}
    failed = {name: each.message for name, each in results.items() if isinstance(each, Infeasible)}
    return ran, failed
