"""The tables of all algorithms on all benchmark graphs: `make benchmarks`.

Runs what `benchmarks/results/suite.json` and `learned.json` do not hold yet, by `tfplace bench` in
processes of its own, and writes the files after every cell; so it can be stopped and goes on where
it was, on any machine. All of it takes most of a day on two cores. A row in a minute or two:

    make benchmarks BENCH_FLAGS='--models=cifar10 --clusters=k80x2 --seeds=1'

A number of trials ends each search, never the clock: whoever runs a cell, on a busy machine or an
idle one, gets the same figure. Cells of another commit than the row's others are run anew, so
that no row mixes commits. Models with options of their own are divided by ";".
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.named_clusters import named
from tests.tables import rewrite_docs
from tests.tables.rewrite_docs import DOCS, ROOT, origin_of
from tests.tables.suite_table import LEARNED, ONE_SHOT, claims_table, learned_table, suite_table
from tfplace.output_paths import write_file
from tfplace.preparing.options import AUTO

RESULTS = DOCS / "benchmarks" / "results"
TRIALS = {
    "cifar10": 300_000, "alexnet": 200_000, "vgg16": 200_000, "rnnlm": 40_000,
    "inception_v3": 20_000, "transformer": 20_000, "dlrm": 20_000, "moe": 8_000,
    "nmt:num_layers=4": 12_000, "resnet152": 8_000,
}  # fmt: skip
"""{graph: trials of each search}, so that one in eight shards takes one to four minutes of a core,
reading included."""
LEARNED_TRIALS = 1_000
LEARNED_MODELS = "rnnlm", "nmt:num_layers=2", "inception_v3", "cifar10"
LEARNED_CLUSTERS = "k80x2", "k80x4"
MIXED = "mixed"
"""Two V100 and two K80 on one host, linked as k80x4."""
CLUSTERS = ("k80x2", "k80x4", "k80x8", "v100x8", MIXED)
SEEDS = (1, 2, 3)
NO_LIMIT_SECONDS = 1e6
"""The budget of a search that its trials end."""

Cell = dict[str, Any]


class Wanted(NamedTuple):
    """A cell: its key in the tables."""

    model: str
    cluster: str
    algorithm: str
    seed: int
    shards: int
    max_trials: int

    @property
    def row(self) -> tuple[str, str, int]:
        """What cells of one row have in common."""
        return self.model, self.cluster, self.max_trials


def suite_cells(
    trials: Mapping[str, int], clusters: Sequence[str], seeds: Sequence[int]
) -> Iterator[Wanted]:
    """The cells of suite.json: all rows with the first seed, then with the next.

    Args:
      trials: {graph: trials of each search}
      clusters, seeds: what each graph is searched on, and with.
    """
    for seed, model, cluster in itertools.product(seeds, trials, clusters):
        once = ONE_SHOT if seed == seeds[0] else ()
        searched = [*((name, 1) for name in (*once, "local_search", "auto")), ("auto", AUTO)]
        for algorithm, shards in searched:
            yield Wanted(model, cluster, algorithm, seed, shards, trials[model])


def learned_cells(
    trials: Mapping[str, int], clusters: Sequence[str], seeds: Sequence[int]
) -> Iterator[Wanted]:
    """The cells of learned.json, likewise."""
    for seed, model, cluster in itertools.product(seeds, trials, clusters):
        for name in (*(("expert", "metis") if seed == seeds[0] else ()), *LEARNED):
            yield Wanted(model, cluster, name, seed, 1, trials[model])


def bench(group: Sequence[Wanted]) -> list[Cell]:
    """Rows of one `tfplace bench`, without those that failed: why goes to stderr.

    Args:
      group: cells that differ in nothing but the algorithm.
    """
    wanted = group[0]
    with tempfile.TemporaryDirectory(prefix="tfplace_suite_") as folder:
        where, output = wanted.cluster, Path(folder, "bench.json")
        if wanted.cluster == MIXED:
            where = str(Path(folder, "mixed.json"))
            write_file(where, json.dumps(mixed_cluster()).encode(), overwrite=False)
        words = [
            f"--models={wanted.model}", f"--clusters={wanted.cluster}",
            f"--algorithms={','.join(each.algorithm for each in group)}", f"--seeds={wanted.seed}",
            f"--max_trials={wanted.max_trials}", f"--budget_seconds={NO_LIMIT_SECONDS:g}",
            f"--shards={'auto' if wanted.shards == AUTO else wanted.shards}",
            f"--order={order_with(wanted.shards)}",
        ]  # fmt: skip
        said = " ".join(["tfplace bench", *words])
        words += [f"--clusters={where}", f"--output={output}", "--parallel=1", "--verbosity=-1"]
        command = [sys.executable, "-P", "-m", "tfplace", "bench", *words]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        rows = json.loads(output.read_text(encoding="utf-8")) if output.exists() else []
    told = {"model": wanted.model, "cluster": wanted.cluster, "command": said}
    return [
        {
            **row,
            **told,
            "history": _trials_of(row["history"]) if row["algorithm"] in LEARNED else [],
        }
        for row in rows
        if "error" not in row
    ]


def _trials_of(history: Sequence[Sequence[float]]) -> list[list[float]]:
    """[[trial, best step in seconds] ..], which are the same on every machine."""
    return [[trial, step_seconds] for trial, _, step_seconds in history]


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


def missing(cells: Sequence[Cell], wanted: Sequence[Wanted], commit: str) -> list[Wanted]:
    """What is to be run: what no cell is of, and all of a row of which something is.

    But a cell of this commit stays.
    """
    known = {_key(cell): cell["commit"] for cell in cells}
    rows = {each.row for each in wanted if each not in known}
    return [each for each in wanted if each.row in rows and known.get(each) != commit]


def run(
    cells: Sequence[Cell],
    wanted: Sequence[Wanted],
    keep: Callable[[Sequence[Cell]], None],
    parallel: int = 1,
    bench: Callable[[Sequence[Wanted]], Sequence[Cell]] = bench,
) -> None:
    """Runs the cells that are missing.

    Args:
      cells: what is known.
      wanted: in the order in which they are begun.
      keep: is given all cells whenever there are new ones.
      parallel: so many benches at a time.
      bench: runs some that differ in nothing but the algorithm.
    """
    origin = origin_of(ROOT)
    made = {"commit": origin["commit"], "machine": origin["machine"]}
    rest = missing(cells, wanted, origin["commit"])
    anew = {each.row for each in rest}
    known = {
        key: cell
        for cell in cells
        if (key := _key(cell)).row not in anew or cell["commit"] == origin["commit"]
    }
    keeping = threading.Lock()

    def work(group: Sequence[Wanted]) -> None:
        new = bench(group)
        with keeping:
            for cell in new:
                took = f"{cell['trials']} trials, {cell['seconds']:.0f} s"
                print(f"{', '.join(map(str, _key(cell)))}: {cell['step_seconds']}, {took}")
            print(f"{len(group) - len(new)} failed", flush=True)
            known.update({_key(cell): {**cell, **made} for cell in new})
            keep(list(known.values()))

    groups: dict[Wanted, list[Wanted]] = {}
    for each in rest:
        groups.setdefault(each._replace(algorithm=""), []).append(each)
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        list(pool.map(work, groups.values()))


def _key(cell: Cell) -> Wanted:
    return Wanted(*(cell[name] for name in Wanted._fields))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing and rewrites the pages."""
    parser = argparse.ArgumentParser(prog="python -m tests.tables.suite")
    parser.add_argument("--models", type=_names)
    parser.add_argument("--clusters", type=_names)
    parser.add_argument("--seeds", default=SEEDS, type=_numbers)
    parser.add_argument("--trials", type=int, help="of each search, instead of the table's")
    parser.add_argument("--parallel", default=1, type=int, help="benches at a time")
    parser.add_argument("--learned", action="store_true", help="the five published systems'")
    flags = parser.parse_args(arguments)
    if flags.learned:
        path, table_of = RESULTS / "learned.json", learned_table
        models, clusters = flags.models or LEARNED_MODELS, flags.clusters or LEARNED_CLUSTERS
        trials = dict.fromkeys(models, flags.trials or LEARNED_TRIALS)
        wanted = learned_cells(trials, clusters, flags.seeds)
    else:
        path, table_of = RESULTS / "suite.json", suite_table
        models, clusters = flags.models or tuple(TRIALS), flags.clusters or CLUSTERS
        trials = {each: flags.trials or TRIALS[each] for each in models}
        wanted = suite_cells(trials, clusters, flags.seeds)

    def keep(cells: Sequence[Cell]) -> None:
        _write(path, table_of(cells, origin_of(ROOT)))
        if flags.learned:
            _write(RESULTS / "published_claims.json", claims_table(cells, origin_of(ROOT)))

    known = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
    run(known, list(wanted), keep, flags.parallel)
    rewrite_docs.main(["--nodemo"])


def _write(path: Path, table: Mapping[str, Any]) -> None:
    write_file(str(path), f"{json.dumps(table, indent=1)}\n".encode(), overwrite=True)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(";" if ";" in text else ","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


if __name__ == "__main__":
    main()
