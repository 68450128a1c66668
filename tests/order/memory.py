"""Measured: a step that does not fit a worker's memory, and its shards in order that do.

The worker is a process of its own whose TensorFlow allocator gives out no more than the limit.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.order.running import asked, graph, tfplace

SIZES = ("--num_layers=4", "--hidden_size=192", "--vocab_size=1000", "--batch_size=32")
LIMIT_MIB = 120
MIB = 2.0**20


def made() -> dict[str, Any]:
    """The note, columns and rows of the result."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = graph(folder, "transformer", *SIZES)
        whole, limited = _clusters(folder)
        rows = [
            _row("unsplit", "none", _measured(model, whole), "given"),
            _row("unsplit", f"{LIMIT_MIB}", _measured(model, limited), "given"),
        ]
        output = folder / "placed"
        found = asked(
            "optimize", model, f"--cluster={limited}", "--shards=auto", "--budget_seconds=10",
            f"--output_dir={output}",
        )  # fmt: skip
        shards = found["split"]["shards"]
        placement = output / "assets.extra" / "tfplace" / "placement.json"
        words = (f"--shards={shards}", "--order=edges", f"--placement={placement}")
        name = f"{shards} shards, found by --shards=auto"
        rows += [
            _row(name, "none", _measured(model, whole, *words), "placed"),
            _row(name, f"{LIMIT_MIB}", _measured(model, limited, *words), "placed"),
        ]
    numbers = [("predicted peak, MiB", ".0f"), ("measured peak, MiB", ".0f"), ("step, ms", ".0f")]
    return {
        "note": f"tfplace graph transformer {' '.join(SIZES)}, on one worker process; peaks are "
        "those of TensorFlow's allocator",
        "columns": [
            {"name": "step"}, {"name": "limit, MiB", "align": "right"},
            *({"name": name, "format": form} for name, form in numbers), {"name": "says"},
        ],
        "rows": rows,
    }  # fmt: skip


def _clusters(folder: Path) -> tuple[str, str]:
    """Files of a cluster of one worker, without a limit of memory and with one."""
    cluster = asked("devices", "--cluster=workers:1")["cluster"]
    paths = []
    for name, memory in (("one_worker", None), ("small_worker", f"{LIMIT_MIB}MiB")):
        value = {**cluster, "name": name}
        if memory is not None:
            value["devices"] = [{**cluster["devices"][0], "memory": memory}]
        path = folder / f"{name}.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        paths.append(str(path))
    return paths[0], paths[1]


def _measured(model: str, cluster: str, *words: str) -> dict[str, Any]:
    done = tfplace(
        "measure", model, f"--cluster={cluster}", "--memory", "--steps=5", "--budget_seconds=5",
        "--format=json", *words,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _row(name: str, limit: str, measured: dict[str, Any], which: str) -> list[Any]:
    step, peaks = measured[which], measured["memory"][which]
    if isinstance(peaks, str):
        return [name, limit, None, None, None, _oom(peaks)]
    peak = next(iter(peaks.values()))
    sizes = [peak["predicted_bytes"] / MIB, peak["measured_bytes"] / MIB]
    return [name, limit, *sizes, 1e3 * step["median_seconds"], "runs"]


def _oom(message: str) -> str:
    """The first words of what TensorFlow says."""
    start = message.find("OOM when allocating")
    return f"{message.split(':')[0]}: {message[start : message.find(' on /job', start)]}"
