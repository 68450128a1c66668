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
    "nasnet": "--size=tiny",
    "transformer": "--num_layers=4 --batch_size=16",
    "dlrm": "--size=tiny",
    "moe": "--size=tiny",
}


def made() -> dict[str, Any]:
    """The note, columns and rows of the result."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [_row(name, sizes, Path(folder)) for name, sizes in GRAPHS.items()]
    numbers = ("predicted, MiB", "measured, MiB", "in chunks, MiB")
    return {
        "note": "one worker process; measured is what ops asked for, beside it what TensorFlow's "
        "allocator held for that",
        "columns": [
            *({"name": name} for name in ("graph", "sizes")),
            *({"name": name, "format": ".1f"} for name in numbers),
            {"name": "predicted over measured", "format": ".2f"},
        ],
        "rows": rows,
    }


def _row(name: str, sizes: str, folder: Path) -> list[Any]:
    model = graph(folder, name.split(":")[0], *sizes.split(), "--overwrite")
    done = tfplace(
        "measure", model, "--cluster=workers:1", "--memory", "--steps=2", "--budget_seconds=2",
        "--format=json",
    )  # fmt: skip
    if not done.stdout:
        raise RuntimeError(f"measuring {name}: {done.stderr}")
    peak = next(iter(json.loads(done.stdout)["memory"]["given"].values()))
    keys = ("predicted_bytes", "measured_bytes", "allocator_bytes")
    predicted, measured, chunks = (peak[key] / MIB for key in keys)
    print(
        f"... {name} {sizes}: {predicted:.1f} predicted, {measured:.1f} measured", file=sys.stderr
    )
    return [
        name.split(":")[0],
        sizes or "as published",
        predicted,
        measured,
        chunks,
        predicted / measured,
    ]
