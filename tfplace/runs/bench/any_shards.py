"""A cell of a bench that tries numbers of shards, as `tfplace optimize --shards=auto` does."""

import shutil
import time
from pathlib import Path
from typing import Any

from graphs.errors import ModelError
from graphs.protos import Json, JsonObject
from tfplace.preparing.options import AUTO, OptimizeOptions, ProblemOptions

MODEL = "model"
"""What a model is called in its cells' folder."""


def keep_model(path: str, folder: str) -> None:
    """Puts a model into the folder of its cells, which read it again for each number of shards.

    Raises:
      ModelError: there is none to read.
    """
    try:
        if Path(path).is_dir():
            shutil.copytree(path, Path(folder, MODEL))
        else:
            shutil.copyfile(path, Path(folder, MODEL))
    except OSError as error:
        raise ModelError(
            f"reading {path}: {error.strerror or error}; wanted a model's file or folder"
        ) from None


def search_shards(request: JsonObject) -> dict[str, Json]:
    """What the row of such a cell has beside its key; see tfplace.runs.bench.cell.

    Besides it has `found_shards`, the best number, `found_cut`, what these are of, "batch" or
    "weights", and `data_parallel_step_seconds`. Its bound holds for any number. Reading and pricing
    the step as it is is not part of the budget, as in other cells; reading it split is, but for
    data parallelism that the search left out.
    """
    from tfplace.choosing.data_parallel import data_parallel_baseline
    from tfplace.choosing.scheduling.model_order import with_order
    from tfplace.choosing.scheduling.search_in_order import search_in_order
    from tfplace.choosing.shards.in_order import in_order
    from tfplace.choosing.shards.shard_search import ShardSearch
    from tfplace.compilation.ahead import kind_of
    from tfplace.compilation.warm_up import warm_up
    from tfplace.preparing.prepare import prepare
    from tfplace.progress import Progress

    problem = ProblemOptions(
        str(Path(request["instance"], MODEL)),
        cluster=request["cluster"],
        memory_reserve=request["memory_reserve"],
        num_shards=AUTO,
        order=request["order"],
    )
    options = OptimizeOptions(
        problem,
        algorithm=request["algorithm"],
        evaluator="simulate",
        budget_seconds=request["budget_seconds"],
        max_trials=request["max_trials"],
        seed=request["seed"],
    )
    prepared = prepare(problem)
    warm_up(kind_of(prepared.problem))  # outside of the cell's budget
    began = time.monotonic()
    found, searched = ShardSearch(prepared, options, None, Progress()).run(lambda decided: None)
    found = with_order(found, request["order"])
    left = options.budget_seconds - (time.monotonic() - began)
    searched = search_in_order(found, options, in_order(found, searched), Progress(), left)
    seconds = time.monotonic() - began
    known = searched.data_parallel
    evenly = known.reported() if known else data_parallel_baseline(prepared, problem)
    return {**_row(found, searched, evenly), "seconds": seconds}


def _row(found: Any, searched: Any, evenly: Any) -> dict[str, Json]:
    """The figures of what was found, a prepared model, of its search, and of data parallelism."""
    from tfplace.bounds.any_split import any_split_bounds, least_of
    from tfplace.bounds.lower_bound import lower_bound_seconds

    steps, best = found.steps_read, searched.best
    if steps is not None and steps.is_priced:
        bound = least_of(any_split_bounds(steps.problems, steps.batch))
    else:
        bound = lower_bound_seconds(found.problem) if found.split is None else None
    singles = [each.single_seconds for each in searched.shards if each.shards == 1]
    return {
        "trials": searched.result.num_trials,
        "infeasible_trials": searched.result.num_infeasible,
        "step_seconds": None if best is None else best.step_seconds,
        "feasible": best is not None,
        "single_step_seconds": next(iter(singles), None),
        "lower_bound_seconds": bound,
        "found_shards": 1 if found.split is None else found.split.num_shards,
        "found_cut": "weights" if found.split and found.split.decisions.pieces else "batch",
        "data_parallel_step_seconds": None if evenly is None else evenly.step_seconds,
        "history": [],
    }
