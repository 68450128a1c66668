"""What sums per host and weights handed on there gain: data parallel and searched, simulated.

    python -m tests.tables.hosts_table MODEL.pb ...

Each step is split into as many shards as two hosts of four V100 have GPUs, once as for one host and
once as for two. Prints a row for each: seconds of a step, and what crosses between the hosts in
it. Searches have equal numbers of trials.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphs.clusters.cluster_file import cluster_from_json, cluster_to_json
from graphs.clusters.named_clusters import named
from graphs.op_graph import IntArray
from graphs.problem import Measurement, Problem
from tfplace.algorithms.placers.data_parallel import data_parallel
from tfplace.algorithms.table import policy_of
from tfplace.preparing.cost_cache import CostCache
from tfplace.preparing.executed_run import STEPS
from tfplace.preparing.find_costs import find_costs
from tfplace.preparing.loaded_model import load_model
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import make_problem, places_of_shards
from tfplace.search.instance import Instance
from tfplace.search.search import Limits, Stage, search
from tfplace.simulation.evaluator import SimulatingEvaluator

BETWEEN_HOSTS = {"bytes_per_second": 3e9, "latency_seconds": 50e-6}  # Ethernet of 25 Gbit/s
NUM_SHARDS = 8
SEARCH_SECONDS = 240.0


def crossing_bytes(problem: Problem, device_of_op: IntArray) -> int:
    """What a placement i4[N] sends from one host to the other in a step."""
    graph = problem.graph
    host = np.unique(problem.device_tasks, return_inverse=True)[1]
    source = device_of_op[graph.tensor_producer[graph.use_tensor]]
    target = device_of_op[graph.use_op]
    crosses = host[source] != host[target]
    sent = np.stack([graph.use_tensor[crosses], target[crosses]], axis=1)
    return int(graph.tensor_bytes[np.unique(sent, axis=0)[:, 0]].sum())


def row_of(problem: Problem, num_trials: int) -> list[float]:
    """Seconds of a data parallel step, megabytes that cross, seconds of the step searched for."""
    placement = data_parallel(problem)
    simulator = SimulatingEvaluator(problem)
    plain = simulator.evaluate(placement[None])[0]
    instance = Instance(problem, placement)
    stage = Stage("annealing", lambda best: policy_of("annealing", instance, 0, None))
    found = search([stage], simulator, Limits(SEARCH_SECONDS, max_trials=num_trials)).best
    if not isinstance(plain, Measurement) or found is None:
        raise SystemExit("the step fits nowhere")
    best = found.outcome.step_seconds if isinstance(found.outcome, Measurement) else np.nan
    return [plain.step_seconds, crossing_bytes(problem, placement) / 1e6, best]


def main(argv: Sequence[str]) -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--trials", type=int, default=2000)
    asked = parser.parse_args(argv)
    value = {**cluster_to_json(named("v100x4")), "name": "two hosts of four V100", "hosts": 2}
    value["host_link"] = BETWEEN_HOSTS
    cluster = cluster_from_json(value)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        for model in asked.models:
            options = ProblemOptions(model, cluster=str(path), num_shards=NUM_SHARDS)
            for places in ((), places_of_shards(cluster, NUM_SHARDS)):
                loaded = load_model(options, places)
                costs, _ = find_costs(loaded, cluster, False, CostCache(None), STEPS)
                problem = make_problem(loaded.built, costs, cluster, options)
                row = row_of(problem, asked.trials)
                print(json.dumps([Path(model).stem, 2 if places else 1, *row]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
