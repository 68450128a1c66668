"""The suite's bounds: what holds for any number of shards, without a search."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfplace.output_paths import write_file

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
    from tfplace.choosing.left_whole import ops_left_whole
    from tfplace.choosing.shard_counts import shard_counts
    from tfplace.preparing.options import AUTO, ProblemOptions
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
