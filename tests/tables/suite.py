"""The table of all algorithms on all benchmark graphs: `make benchmarks`.

Runs what `benchmarks/results/suite.json` does not hold yet, by `tfplace bench` in processes of its
own, and writes the file after every pair of graph and cluster; so it can be stopped and goes on
where it was, on any machine. All of it takes a day on two cores. A row or two in a minute:

    make benchmarks BENCH_FLAGS='--models=cifar10 --clusters=k80x2 --seeds=1 --budget_seconds=3'

Models with options of their own are divided by ";".

Each cell keeps the commit and the machine that made it. `--algorithms=single,auto` runs these
columns only; `--again` runs those of the wanted cells anew that other commits made; `--bounds` runs
nothing, but finds the wanted pairs' bounds anew (half an hour for all of them on one core).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.named_clusters import named
from tests.tables import rewrite_docs
from tests.tables.rewrite_docs import DOCS, ROOT, origin_of
from tests.tables.suite_table import ONE_SHOT, SEARCHED, table_of
from tfplace.output_paths import write_file
from tfplace.preparing.options import AUTO

Bound = dict[str, Any]


def bound_of(model: str, cluster: str, description: Mapping[str, Any] | None = None) -> Bound:
    """Reads and prices the step unsplit and in 2, 4, .. shards, up to one for each device.

    Args:
      model: name of a benchmark graph, with its options as `tfplace bench` has them.
      cluster: name of a cluster.
      description: what its file says, where it has no name that tfplace knows.

    Returns:
      `lower_bound_seconds`, and which numbers of `shards` were read.
    """
    from tfplace.algorithms.placers.legal import working_devices
    from tfplace.bounds.any_split import any_split_bounds, least_of
    from tfplace.choosing.shards.kept_whole import ops_left_whole
    from tfplace.choosing.shards.shard_counts import shard_counts
    from tfplace.preparing.options import ProblemOptions
    from tfplace.preparing.prepare import prepare

    with tempfile.TemporaryDirectory(prefix="tfplace_suite_") as folder:
        where, graph = cluster, str(Path(folder, "graph.pb"))
        if description is not None:
            where = str(Path(folder, "cluster.json"))
            write_file(where, json.dumps(description).encode(), overwrite=False)
        name, *flags = model.split(":")
        words = [name, *(f"--{flag}" for flag in flags), f"--output={graph}", "--verbosity=-1"]
        subprocess.run([sys.executable, "-P", "-m", "tfplace", "graph", *words], check=True)
        options = ProblemOptions(graph, cluster=where, num_shards=AUTO, order="edges")
        whole = prepare(options)
        most = len(working_devices(whole.problem))
        bounds = []
        for left in {frozenset[str](), ops_left_whole(whole, {})}:  # the least holds for both ways
            steps, batch = {1: whole.problem}, 0
            for count in (each for each in shard_counts(most) if each <= most):
                split = dataclasses.replace(options, num_shards=count, left_whole=left)
                read = prepare(split, trace=False, earlier=whole)
                assert read.split is not None
                steps[count], batch = read.problem, read.split.decisions.batch
            bounds += any_split_bounds(steps, batch)
    return {
        "model": model,
        "cluster": cluster,
        "shards": sorted(steps),
        "lower_bound_seconds": least_of(bounds),
    }


RESULT = DOCS / "benchmarks" / "results" / "suite.json"
MODELS = (
    "cifar10", "rnnlm", "nmt:num_layers=4", "inception_v3", "resnet152", "transformer", "dlrm",
    "moe",
)  # fmt: skip
MIXED = "mixed"
"""Two V100 and two K80 on one host, linked as k80x4."""
CLUSTERS = ("k80x2", "k80x4", "k80x8", "v100x8", MIXED)
SEEDS, BUDGET_SECONDS = (1, 2, 3), 60.0

Cell = dict[str, Any]
Bench = Callable[[str, str, Sequence[str], Sequence[int], int, float], list[Cell]]
KEY = ("model", "cluster", "algorithm", "seed", "shards", "budget_seconds", "order")


def bench(
    model: str,
    cluster: str,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    shards: int,
    budget_seconds: float,
) -> list[Cell]:
    """Rows of one `tfplace bench`; of cells that fail, why."""
    with tempfile.TemporaryDirectory(prefix="tfplace_suite_") as folder:
        where = cluster
        if cluster == MIXED:
            where = str(Path(folder, "mixed.json"))
            write_file(where, json.dumps(mixed_cluster()).encode(), overwrite=False)
        output = Path(folder, "bench.json")
        words = [
            f"--models={model}", f"--clusters={cluster}", f"--algorithms={','.join(algorithms)}",
            f"--seeds={','.join(map(str, seeds))}", f"--budget_seconds={budget_seconds:g}",
            f"--shards={'auto' if shards == AUTO else shards}", f"--order={order_with(shards)}",
            "--parallel=1",
        ]  # fmt: skip
        said = " ".join(["tfplace bench", *words])
        words += [f"--clusters={where}", f"--output={output}", "--verbosity=-1"]
        command = [sys.executable, "-P", "-m", "tfplace", "bench", *words]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        rows = json.loads(output.read_text(encoding="utf-8")) if output.exists() else []
    told = {"model": model, "cluster": cluster, "history": [], "command": said}
    return [{**row, **told} for row in rows]


def order_with(shards: int) -> str:
    """What `tfplace optimize` takes by itself for a cluster that isn't here."""
    return "edges" if shards == AUTO else "none"


def mixed_cluster() -> dict[str, Any]:
    """A cluster file: k80x4 with two of its GPUs exchanged for V100."""
    value = cluster_to_json(named("k80x4"))
    fast = next(d for d in cluster_to_json(named("v100x4"))["devices"] if "GPU" in d["name"])
    gpus = [device for device in value["devices"] if "GPU" in device["name"]]
    for device in gpus[:2]:
        device.update({key: each for key, each in fast.items() if key != "name"})
    return {**value, "name": MIXED}


def run(
    cells: Sequence[Cell],
    wanted: argparse.Namespace,
    keep: Callable[[Sequence[Cell]], None],
    bench: Bench = bench,
) -> None:
    """Runs the cells that are missing, those of one graph, cluster and kind at a time.

    Args:
      cells: what is known.
      wanted: models, clusters, algorithms, seeds, budget_seconds.
      keep: is given all cells whenever there are new ones.
      bench: runs some.
    """
    known = list(cells)
    kinds: Sequence[tuple[Sequence[str], Sequence[int], int]] = (
        (ONE_SHOT, wanted.seeds[:1], 1),
        (SEARCHED, wanted.seeds, 1),
        (("auto",), wanted.seeds, AUTO),
    )
    chosen = set(wanted.algorithms)
    for model, cluster in ((m, c) for m in wanted.models for c in wanted.clusters):
        for algorithms, seeds, shards in kinds:
            done = {tuple({"order": "none", **cell}[key] for key in KEY) for cell in known}
            limits = wanted.budget_seconds, order_with(shards)
            rest = {
                seed: [
                    name
                    for name in algorithms
                    if name in chosen and (model, cluster, name, seed, shards, *limits) not in done
                ]
                for seed in seeds
            }
            for seed, names in rest.items():
                if names:
                    print(f"{model} on {cluster}, seed {seed}: {', '.join(names)}", flush=True)
                    rows = bench(model, cluster, names, [seed], shards, wanted.budget_seconds)
                    origin = origin_of(ROOT)
                    known += [
                        {**row, "commit": origin["commit"], "machine": origin["machine"]}
                        for row in rows
                    ]
                    keep(known)


def find_bounds(
    wanted: argparse.Namespace,
    known: Sequence[Bound],
    keep: Callable[[Sequence[Bound]], None],
    bound: Callable[[str, str, Mapping[str, Any] | None], Bound] = bound_of,
) -> None:
    """Finds the bound of each wanted pair of graph and cluster, searching nothing.

    Args:
      wanted: models, clusters.
      known: bounds; a pair's new one takes its old one's place.
      keep: is given all bounds whenever there is a new one.
      bound: finds one, as bound_of does.
    """
    of_pair = {(each["model"], each["cluster"]): each for each in known}
    for model, cluster in ((m, c) for m in wanted.models for c in wanted.clusters):
        print(f"{model} on {cluster}: bound", flush=True)
        found = bound(model, cluster, mixed_cluster() if cluster == MIXED else None)
        origin = origin_of(ROOT)
        made = {"commit": origin["commit"], "machine": origin["machine"]}
        of_pair[model, cluster] = {**found, **made}
        keep(list(of_pair.values()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing and rewrites the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.tables.suite")
    parser.add_argument("--models", default=MODELS, type=_names)
    parser.add_argument("--clusters", default=CLUSTERS, type=_names)
    parser.add_argument("--algorithms", default=(*ONE_SHOT, *SEARCHED), type=_names)
    parser.add_argument("--seeds", default=SEEDS, type=_numbers)
    parser.add_argument("--budget_seconds", type=float, default=BUDGET_SECONDS)
    parser.add_argument(
        "--again", action="store_true", help="run wanted cells of other commits anew"
    )
    parser.add_argument(
        "--bounds", action="store_true", help="only find the wanted pairs' bounds anew"
    )
    wanted = parser.parse_args(arguments)
    cells: Sequence[Mapping[str, Any]] = []
    if RESULT.exists():
        cells = json.loads(RESULT.read_text(encoding="utf-8"))["cells"]
    if wanted.bounds:
        find_bounds(wanted, _known_bounds(), lambda bounds: _keep(cells, bounds))
        rewrite_docs.main(["--nodemo"])
        return
    if wanted.again:
        commit = origin_of(ROOT)["commit"]
        cells = [cell for cell in cells if cell["commit"] == commit or not _is_wanted(cell, wanted)]
    run([dict(cell) for cell in cells if _counts(cell)], wanted, _keep)
    rewrite_docs.main(["--nodemo"])


def _is_wanted(cell: Mapping[str, Any], wanted: argparse.Namespace) -> bool:
    names = {
        "model": wanted.models, "cluster": wanted.clusters, "algorithm": wanted.algorithms,
        "seed": wanted.seeds, "budget_seconds": (wanted.budget_seconds,),
    }  # fmt: skip
    return all(cell[key] in values for key, values in names.items())


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(";" if ";" in text else ","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def _counts(cell: Mapping[str, Any]) -> bool:
    """Whether it was run, and as it would be today."""
    return "error" not in cell and cell.get("order", "none") == order_with(cell["shards"])


def _known_bounds() -> Sequence[Bound]:
    if not RESULT.exists():
        return []
    return json.loads(RESULT.read_text(encoding="utf-8")).get("bounds", [])


def _keep(cells: Sequence[Mapping[str, Any]], bounds: Sequence[Bound] | None = None) -> None:
    bounds = _known_bounds() if bounds is None else bounds
    text = json.dumps(table_of(cells, origin_of(ROOT), bounds), indent=1)
    write_file(str(RESULT), f"{text}\n".encode(), overwrite=True)


if __name__ == "__main__":
    main()
