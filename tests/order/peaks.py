"""Measured: the most memory that a step of each benchmark graph holds, beside what is predicted."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.order.memory import MIB
from tests.order.running import graph, tfplace

# As published but for what takes one core a minute, or more memory than this host has.
GRAPHS = {
    "rnnlm": "--hidden_size=512 --num_steps=20 --batch_size=32",
    "nmt": "--hidden_size=256 --num_steps=20 --vocab_size=4000 --batch_size=32",
    "nmt:num_layers=4": "--num_layers=4 --hidden_size=256 --num_steps=10 --vocab_size=4000",
    "cifar10": "",
    "alexnet": "--batch_size=32",
    "vgg16": "--batch_size=4",
    "inception_v3": "--batch_size=8",
    "resnet50": "--batch_size=8",
    "resnet50_v1": "--batch_size=8",
    "resnet152": "--batch_size=4",
    "nasnet": "--batch_size=2",
    "transformer": "--num_layers=4 --batch_size=16",
    "dlrm": "--vocab_size=20000 --batch_size=512",
    "moe": "--num_layers=2 --hidden_size=128 --num_steps=64 --vocab_size=4000 --batch_size=4",
}


WAYS = {"without oneDNN": "0", "with it": "1"}
"""{what a column says: TF_ENABLE_ONEDNN_OPTS}; the second is as the first where a CPU has none."""


def made() -> dict[str, Any]:
    """The note, columns and rows of the result."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [_row(name, sizes, Path(folder)) for name, sizes in GRAPHS.items()]
    numbers = [("predicted, MiB", ".1f"), ("measured, MiB", ".1f"), ("ratio", ".2f")]
    return {
        "note": "one worker process; measured is what ops asked for",
        "columns": [
            *({"name": name} for name in ("graph", "sizes")),
            *({"name": f"{what}, {way}", "format": form} for way in WAYS for what, form in numbers),
        ],
        "rows": rows,
    }


def _row(name: str, sizes: str, folder: Path) -> list[Any]:
    graph_name = name.split(":")[0]
    model = graph(folder, graph_name, *sizes.split(), "--overwrite")
    cells: list[Any] = []
    for way in WAYS.values():
        done = tfplace(
            "measure", model, "--cluster=workers:1", "--memory", "--steps=2", "--budget_seconds=2",
            "--format=json", environment={"TF_ENABLE_ONEDNN_OPTS": way},
        )  # fmt: skip
        if not done.stdout:
            raise RuntimeError(f"measuring {name}: {done.stderr}")
        peak = next(iter(json.loads(done.stdout)["memory"]["given"].values()))
        predicted, measured = (peak[f"{what}_bytes"] / MIB for what in ("predicted", "measured"))
        cells += [predicted, measured, predicted / measured]
    print(f"... {name} {sizes}: {cells}", file=sys.stderr)
    return [graph_name, sizes or "as published", *cells]
