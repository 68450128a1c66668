"""One cell of a bench in a process of its own: `python -m tfplace.runs.bench.cell REQUEST`.

REQUEST is a JSON object in one argument; the row is printed as the last line of stdout. One
core per cell: libraries are told so before they start their threads.
"""

import json
import math
import sys
import time

import graphs.late_tensorflow as tf
from graphs.errors import TfplaceError
from graphs.host.op_libraries import load_named_op_libraries
from graphs.problem import Measurement
from graphs.protos import Json, JsonObject


def run_cell(request: JsonObject) -> dict[str, Json]:
    """Runs one search and returns what its row has beside the key.

    Args:
      request: the cell's fields (see tfplace.runs.bench.run_cells), "instance", a folder that
        write_instance made, "memory_reserve", and "num_threads".
    """
    from tfplace.preparing.options import AUTO

    if request["shards"] == AUTO:
        from tfplace.runs.bench.any_shards import search_shards

        return search_shards(request)
    from tfplace.algorithms.table import stages_of
    from tfplace.bounds.lower_bound import lower_bound_seconds
    from tfplace.choosing.baselines import best_single
    from tfplace.compilation.ahead import kind_of
    from tfplace.compilation.warm_up import warm_up
    from tfplace.search.instance import read_instance
    from tfplace.search.search import Limits, search
    from tfplace.simulation.evaluator import SimulatingEvaluator

    instance = read_instance(request["instance"])
    warm_up(kind_of(instance.problem))  # outside of the cell's budget
    evaluator = SimulatingEvaluator(instance.problem, request["num_threads"])
    evaluator.evaluate(instance.given[None])  # loads what was compiled
    single = best_single(instance, evaluator)
    began = time.monotonic()
    stages = stages_of(request["algorithm"], instance, request["seed"], None)
    result = search(stages, evaluator, Limits(request["budget_seconds"], request["max_trials"]))
    best = None if result.best is None else result.best.outcome
    step_seconds = best.step_seconds if isinstance(best, Measurement) else None
    return {
        "trials": result.num_trials,
        "infeasible_trials": result.num_infeasible,
        "seconds": time.monotonic() - began,
        "step_seconds": step_seconds,
        "feasible": step_seconds is not None,
        "single_step_seconds": single.step_seconds if math.isfinite(single.step_seconds) else None,
        "lower_bound_seconds": lower_bound_seconds(instance.problem),
        "history": [list(row) for row in result.history if math.isfinite(row[2])],
    }


def main() -> None:
    """Reads the request, prints the row, or why there is none as the last line of stderr."""
    request = json.loads(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(request["num_threads"])
    tf.config.threading.set_inter_op_parallelism_threads(1)
    load_named_op_libraries()
    try:
        row = run_cell(request)
    except TfplaceError as error:
        sys.exit(str(error))
    print("\n" + json.dumps(row, allow_nan=False))


if __name__ == "__main__":
    main()
