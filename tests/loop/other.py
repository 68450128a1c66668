"""What another checkout of tfplace chooses for the same model: an earlier commit, say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphs.op_graph import IntArray
from tests.rival.contestant import RivalError
from tfplace.preparing.prepare import PreparedModel

OTHER = "other checkout"
UNKNOWN_BEFORE = ("--shards", "--order")
"""Flags that an earlier commit may not have; it places the step as it came."""
LEAST_NAMED = 0.9
"""The share of ops that its placement has to name."""
SECONDS = 240.0


def place_by_other(
    checkout: Path, model: Path, folder: Path, cluster: str, flags: Sequence[str]
) -> Path:
    """Its placement.json, made by its own `tfplace optimize` unless that was done before.

    Raises:
      RivalError: it failed, or took too long.
    """
    placed = folder / "placed_by_other"
    file = placed / "assets.extra" / "tfplace" / "placement.json"
    if file.exists():
        return file
    if not (checkout / "tfplace" / "__init__.py").exists():  # else Python finds another one
        raise RivalError(f"{checkout} is no checkout of tfplace")
    known = [flag for flag in flags if not flag.startswith(UNKNOWN_BEFORE)]
    words = ["optimize", str(model), f"--cluster={cluster}", *known]
    words += [f"--output_dir={placed}", f"--cost_cache_dir={folder / 'costs_of_other'}"]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "TF_CPP_MIN_LOG_LEVEL": "2"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tfplace", *words],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise RivalError(f"it took more than {SECONDS:.0f} s") from None
    (folder / "optimize_by_other.txt").write_text(done.stdout + done.stderr)
    if done.returncode or not file.exists():
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise RivalError(f"it ended with {done.returncode}: {said}")
    return file


def read_by_name(file: Path, prepared: PreparedModel) -> IntArray:
    """The placement i4[N] of the ops that it names; the others lie where they were given.

    Raises:
      RivalError: it names too few of them, or devices that there are not.
    """
    devices = json.loads(file.read_bytes())
    names, known = prepared.problem.graph.op_names, prepared.problem.device_names
    if unknown := set(devices.values()) - set(known):
        raise RivalError(f"it places ops on {sorted(unknown)[0]}, which there is not")
    named = [name in devices for name in names]
    if np.mean(named) < LEAST_NAMED:
        raise RivalError(f"it names {np.mean(named):.0%} of the ops; wanted {LEAST_NAMED:.0%}")
    placed = prepared.given.copy()
    for op, name in enumerate(names):
        if name in devices:
            placed[op] = known.index(devices[name])
    return placed
