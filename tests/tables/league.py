"""The league: rivals' own planners and tfplace on equal work, `benchmarks/planners.md`.

    python -m tests.tables.league --piper=DIR --zero_bubble=DIR --partitioning=DIR

Each DIR is a git checkout (or its git directory) of the rival's repository, from which the commit
below is taken out into a temporary folder, built and run there with a time limit. Nothing of theirs
is in this repository: only the figures stay, in `benchmarks/results/planners.json`. A rival that
is not named keeps the rows it has. What the rivals need besides: g++; zero bubble's schedulers a
Python with PuLP and numpy (`--pulp_python`).

tfplace's searches are ended by a number of trials, so that anybody gets the same figures.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import json
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphs.problem import Problem
from tests.tables.league_loads import (
    Pipeline,
    Plan,
    full_pipeline,
    is_contiguous,
    most_load,
    most_memory,
)
from tests.tables.league_orders import Case, in_our_order, in_their_order, least_seconds
from tests.tables.planner_inputs import partitioning_input, piper_input, problem_of
from tests.tables.rewrite_docs import DOCS, ROOT, origin_of, write_result
from tfplace.choosing.find_placement import ProblemAlone, find_placement
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.progress import Progress
from tfplace.simulation.simulator import Simulator

PAGE = DOCS / "benchmarks" / "planners.md"
COMMITS = {
    "piper": "d7fc8cf91048f4b71dc2f9182fa14ebf720c016e",
    "partitioning": "b207b6ad27a1407d321f1e028cea96d7f2c90e3e",
    "zero_bubble": "93af65c60b335eeaece94464a45e5ab0c03dc4cd",
}
"""What is run. Zero bubble's is the branch legacy-main: the integer program is gone from main."""
SAMPLES = 16
NO_LIMIT_SECONDS = 1e6
PIPER_INPUTS = (("bert32a100", 4), ("bert32a100", 8), ("bert32a100", 10), ("resnet", 4),
                ("resnet", 8), ("gnmt", 8))  # fmt: skip
"""An input's name and the number of devices."""
PARTITIONING_INPUTS = (
    *(f"LayerGraphs/{graph}_{kind}.json" for graph in ("bert24", "gnmt", "resnet50")
      for kind in ("inference", "training")),
    "OperatorGraphs/bert_l-3_inference.json", "OperatorGraphs/bert_l-3_training.json",
)  # fmt: skip
CASES = [
    Case(stages, batches, seconds, hop, times * 2 * stages)
    for (seconds, hop), stages, batches, times in itertools.product(
        (((10, 10, 10), 0), ((5, 6, 4), 0), ((5478, 5806, 3534), 200)), (4, 8), (8, 12, 16), (1, 2)
    )
]
COLUMNS = (
    {"name": "rival"}, {"name": "work"},
    {"name": "theirs, their rule", "format": ",.2f"},
    {"name": "tfplace, their rule", "format": ",.2f"}, {"name": "ratio", "format": ".3f"},
    {"name": "theirs, our rule", "format": ",.2f"},
    {"name": "tfplace, our rule", "format": ",.2f"}, {"name": "ratio ", "format": ".3f"},
    {"name": "trials", "format": ",d"},
    {"name": "and", "format": ",d"}, {"name": "remark"},
)  # fmt: skip

PIPER_MAIN = """
#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#define main their_main
#include "algo.cpp"
#undef main
int main() {
    TENSOR_PARALLELISM_ALLOWED = DATA_PARALLELISM_ALLOWED = false;
    ACTIVATION_RECOMPUTATION_ALLOWED = false;
    json input;
    cin >> input;
    Instance instance = input.get<Instance>();
    Graph graph(instance);
    Result result = graph.runDP();
    json output = {{"seconds", graph.getTPSForResult(result)}};
    graph.renumberResultBack(result);
    for (const ResultStage &stage : result.stages) output["stages"].push_back(stage.nodes);
    cout << output;
}
"""
"""Reads an input, tells Piper to keep to pipelines, and prints its plan."""
TORCH = """
import contextlib
import numpy
class Tensor(numpy.ndarray):
    def cuda(self): return self
    cpu = cuda
def zeros(*shape): return numpy.zeros(shape, numpy.float32).view(Tensor)
def ones(*shape): return numpy.ones(shape, numpy.float32).view(Tensor)
minimum, equal, no_grad = numpy.minimum, numpy.array_equal, contextlib.nullcontext
"""
"""As much of torch as the schedulers use, on a machine without it."""
ZERO_BUBBLE_MAIN = """
import contextlib, io, json, sys
import auto_schedule, pulp
stages, batches, (f, b, w), hop, memory, with_ilp = json.load(sys.stdin)
config = auto_schedule.GraphConfig(
    cost_f=[f] * stages, cost_b=[b] * stages, cost_w=[w] * stages, cost_comm=hop,
    mem_f=[2] * stages, mem_b=[-1] * stages, mem_w=[-1] * stages,
    max_mem=[memory] * (3 * stages * batches))
graph = auto_schedule.Graph.build_graph(stages, batches, config)
with contextlib.redirect_stdout(io.StringIO()):
    if with_ilp:
        problem, _, ends, _ = auto_schedule.build_ilp(graph)
        auto_schedule.solve_ilp(problem)
        longest = pulp.value(problem.objective)
        ends = [pulp.value(ends[i]) for i in range(graph.nnodes)]
    else:
        longest, _, ends = auto_schedule.initial_solution(graph, print_result=False)
print(json.dumps({"longest": longest, "ends": ends}))
"""
"""Schedules one case; the last line it prints is the result. The limit of memory is there for each
stage (the greedy scheduler) and for each op (the integer program)."""

Row = list[Any]


def taken_out(checkout: str, commit: str, folder: Path) -> Path:
    """The files of a checkout's commit, in a folder of their own."""
    made = subprocess.run(
        ["git", "-C", checkout, "archive", commit], capture_output=True, check=True
    )
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def built(source: Path, program: Path) -> Path:
    """A program of one C++ file."""
    flags = ["-O3", "-DNDEBUG", "-w"]
    subprocess.run(["g++", *flags, "-o", program, source.name], cwd=source.parent, check=True)
    return program


@dataclasses.dataclass(frozen=True)
class Limits:
    """What ends a rival's run, and tfplace's.

    Attributes:
      rival_seconds: of a rival's program.
      simulated_ops: ops of all trials of one search together.
      answers: a folder where what rivals answer is kept, and taken from; None for none.
    """

    rival_seconds: float = 1800.0
    simulated_ops: int = 3_000_000
    answers: Path | None = None

    def trials(self, problem: Problem) -> int:
        """Of a search; at least 200."""
        return max(self.simulated_ops // problem.num_ops, 200)


def answer(command: Sequence[Any], told: str, folder: Path, limits: Limits) -> Any:
    """The JSON that a program prints last; None where it fails or takes too long."""
    name = Path(command[-1]).stem
    kept = limits.answers and limits.answers / f"{name}-{zlib.crc32(told.encode()):08x}.json"
    if kept and kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    try:
        done = subprocess.run(
            [str(word) for word in command], cwd=folder, input=told, capture_output=True,
            text=True, timeout=limits.rival_seconds, check=True,
        )  # fmt: skip
        said = done.stdout[done.stdout.find("{") :]
        value = json.loads(said)
    except (subprocess.SubprocessError, ValueError) as error:
        print(f"league: {command[0]}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return None
    if kept:
        kept.write_text(said, encoding="utf-8")
    return value


def searched(problem: Problem, trials: int) -> tuple[np.ndarray, float]:
    """tfplace's best placement i4[N] and its makespan, seed 1; it begins with one device."""
    given = np.argmin(problem.op_seconds, axis=1).astype(np.int32)
    options = OptimizeOptions(
        ProblemOptions(""), budget_seconds=NO_LIMIT_SECONDS, max_trials=trials, seed=1
    )
    found = find_placement(ProblemAlone(problem, given), options, None, None, Progress())
    if found.result.interrupted:
        raise KeyboardInterrupt
    if found.best is None:
        raise ValueError("searching a rival's input: nothing fits; wanted one that they plan")
    return found.best.device_of_op, found.best.step_seconds


def planners_row(
    name: str, work: str, pipeline: Pipeline, theirs: Plan, told: float, limits: Limits
) -> Row:
    """Two plans of one graph, by the load of a full pipeline and by a step of 16 samples.

    Args:
      told: milliseconds that the rival's program says of its plan.
    """
    planned = pipeline.planned
    counted = most_load(pipeline, theirs) * 1e3
    if abs(counted - told) > 1e-3 * told:
        raise ValueError(f"counting {name}'s plan of {work}: {counted} ms, it says {told} ms")
    problem, keys = full_pipeline(pipeline)
    device, _ = searched(problem, limits.trials(problem))
    number = {op: i for i, op in enumerate(problem.graph.op_names)}
    ours = {key: int(device[number[f"layer_{i}"]]) for i, key in enumerate(keys)}
    assert most_memory(pipeline, ours) <= planned.memory_bytes
    load = most_load(pipeline, ours) * 1e3
    step = problem_of(planned, SAMPLES)
    of_layer = {planned.layers[key].name: at for key, at in theirs.items()}
    there = [of_layer[op.rpartition("/sample_")[0]] for op in step.graph.op_names]
    per_sample = 1e3 / SAMPLES
    their_step = Simulator(step, 1).run(np.array(there, dtype=np.int32))[0] * per_sample
    our_step = searched(step, limits.trials(step))[1] * per_sample
    remark = "" if is_contiguous(pipeline, ours) else "not contiguous"
    compared = [told, load, load / told, their_step, our_step, our_step / their_step]
    trials = limits.trials(problem), limits.trials(step)
    return [name, work, *compared, *trials, remark]


def piper_rows(checkout: str, limits: Limits) -> Iterator[Row]:
    """Piper without tensor and data parallelism and recomputation."""
    with tempfile.TemporaryDirectory(prefix="league_") as temporary:
        folder = taken_out(checkout, COMMITS["piper"], Path(temporary, "piper"))
        Path(folder, "league.cpp").write_text(PIPER_MAIN, encoding="utf-8")
        program = built(folder / "league.cpp", Path(temporary, "piper.exe"))
        for graph, devices in PIPER_INPUTS:
            value = json.loads((folder / "inputs" / f"{graph}.json").read_text(encoding="utf-8"))
            plain_piper(value, devices, in_seconds=graph.startswith("bert"))
            plan = answer([program], json.dumps(value), folder, limits)
            if plan is not None:
                stages = {
                    node: stage for stage, nodes in enumerate(plan["stages"]) for node in nodes
                }
                told, work = plan["seconds"] * 1e3, f"{graph}, {devices} devices"
                yield planners_row("Piper", work, piper_pipeline(value), stages, told, limits)


def plain_piper(value: dict[str, Any], devices: int, in_seconds: bool) -> None:
    """Makes an input one of pipelines alone, in seconds: of two files the times are milliseconds.

    So they are in dnn-partitioning's inputs of the same graphs, while bytes / bandwidth, which
    Piper adds to them, are seconds.
    """
    value["maxDevices"] = devices
    for node in value["nodes"]:
        plain = node["TMPCs"]["1"][0]
        plain["timePerSample"] *= 1.0 if in_seconds else 1e-3
        node["TMPCs"] = {"1": [plain]}


def piper_pipeline(value: Mapping[str, Any]) -> Pipeline:
    """What Piper plans, as it counts: an edge moves its bytes there and back.

    A stage may hold the samples of all stages behind it; here each holds as many as there are
    devices, which is never less.
    """
    changed = json.loads(json.dumps(value))
    for node in changed["nodes"]:
        plain = node["TMPCs"]["1"][0]
        plain["timePerSample"] *= 1e3
        plain["memoryUsageB"] += changed["maxDevices"] * plain["memoryUsageA"]
    for edge in changed["edges"]:
        edge["communicationCost"] *= 2
    planned = piper_input(changed)
    return Pipeline(planned, each_edge=True, forward=frozenset(planned.layers))


def partitioning_rows(checkout: str, limits: Limits) -> Iterator[Row]:
    """The best contiguous split, by dynamic programming."""
    name = "dnn-partitioning"
    with tempfile.TemporaryDirectory(prefix="league_") as temporary:
        folder = taken_out(checkout, COMMITS["partitioning"], Path(temporary, "partitioning"))
        program = built(folder / "throughput-dp" / "dp.cpp", Path(temporary, "dp.exe"))
        for path in PARTITIONING_INPUTS:
            text = (folder / "throughput-inputs" / path).read_text(encoding="utf-8")
            plan = answer([program], text, folder, limits)
            if plan is None:
                continue
            value = json.loads(text)
            forward = frozenset(n["id"] for n in value["nodes"] if not n["isBackwardNode"])
            pipeline = Pipeline(partitioning_input(value), each_edge=False, forward=forward)
            parts = [*plan["cpus"], *[{"nodes": []}] * (value["maxCPUs"] - len(plan["cpus"]))]
            parts += plan["fpgas"]
            theirs = {node: at for at, part in enumerate(parts) for node in part["nodes"]}
            work = Path(path).stem.replace("_", " ")
            yield planners_row(name, work, pipeline, theirs, plan["maxLoad"], limits)


def zero_bubble_rows(
    checkout: str, python: str, limits: Limits, ilp_cases: int = 0
) -> Iterator[Row]:
    """The greedy scheduler of all cases, and the integer program of the first ones."""
    with tempfile.TemporaryDirectory(prefix="league_") as temporary:
        folder = taken_out(checkout, COMMITS["zero_bubble"], Path(temporary, "zero_bubble"))
        there = folder / "megatron" / "core" / "pipeline_parallel"
        (there / "torch.py").write_text(TORCH, encoding="utf-8")
        (there / "league.py").write_text(ZERO_BUBBLE_MAIN, encoding="utf-8")
        small = [case for case in CASES if case.stages == 4 and case.batches == 8][:ilp_cases]
        for case, ilp in [*((case, False) for case in CASES), *((case, True) for case in small)]:
            told = [case.stages, case.batches, case.seconds, case.hop, case.memory, ilp]
            plan = answer([python, "league.py"], json.dumps(told), there, limits)
            if plan is not None:
                yield order_row(f"zero bubble, {'ILP' if ilp else 'greedy'}", case, plan)


def order_row(name: str, case: Case, plan: Mapping[str, Any]) -> Row:
    """A rival's order and tfplace's, by the longest stage and by the whole step."""
    times = "/".join(str(each) for each in case.seconds) + (f" + {case.hop}" if case.hop else "")
    work = f"{case.stages} x {case.batches}, {times}, memory {case.memory}"
    step, by_stage = in_our_order(case)
    theirs = in_their_order(case, plan["ends"])
    remark = "no step is shorter" if step <= least_seconds(case) else ""
    longest = plan["longest"]
    compared = [longest, by_stage, by_stage / longest, theirs, step, step / theirs]
    return [name, work, *compared, None, None, remark]


def league(rows: Sequence[Row], words: str) -> dict[str, Any]:
    """The result file."""
    return {
        "command": f"python -m tests.tables.league {words}",
        **origin_of(ROOT),
        "note": "Piper and dnn-partitioning in milliseconds a sample; zero bubble in its own units",
        "columns": list(COLUMNS),
        "rows": list(rows),
    }


def main(arguments: Sequence[str] | None = None, page: Path = PAGE) -> None:
    """Runs the rivals that are named and rewrites the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.tables.league")
    parser.add_argument("--piper", help="checkout of msr-fiddle/piper")
    parser.add_argument("--zero_bubble", help="of sail-sg/zero-bubble-pipeline-parallelism")
    parser.add_argument("--partitioning", help="of msr-fiddle/dnn-partitioning")
    parser.add_argument("--pulp_python", default=sys.executable, help="a Python that has PuLP")
    parser.add_argument("--limit_seconds", default=1800.0, type=float, help="of a rival's run")
    parser.add_argument("--simulated_ops", default=3_000_000, type=int, help="of each search")
    parser.add_argument("--answers", type=Path, help="a folder that keeps what rivals answer")
    parser.add_argument("--ilp_cases", default=6, type=int, help="for zero bubble's program")
    flags = parser.parse_args(arguments)
    limits = Limits(flags.limit_seconds, flags.simulated_ops, flags.answers)
    rows: list[Iterator[Row]] = []
    if flags.piper:
        rows.append(piper_rows(flags.piper, limits))
    if flags.partitioning:
        rows.append(partitioning_rows(flags.partitioning, limits))
    if flags.zero_bubble:
        rows.append(zero_bubble_rows(
            flags.zero_bubble, flags.pulp_python, limits, flags.ilp_cases
        ))  # fmt: skip
    result = page.parent / "results" / f"{page.stem}.json"
    kept = json.loads(result.read_text(encoding="utf-8"))["rows"] if result.exists() else []
    made: list[Row] = []
    words = "--piper=DIR --partitioning=DIR --zero_bubble=DIR"
    for row in itertools.chain(*rows):
        print(*row, sep=" | ", flush=True)
        made.append(row)
        names = {row[0] for row in made}
        others = [row for row in kept if len(row) == len(COLUMNS) and row[0] not in names]
        write_result(page, league([*others, *made], words))


if __name__ == "__main__":
    main()
