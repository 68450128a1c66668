"""Measured: Keras steps at half of what they take, beside what TensorFlow and Keras have for that.

The worker is a process of its own whose TensorFlow allocator gives out no more than the limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import keras

from tests.order.keras_step import CHAINS, GRAPPLER, PLAIN
from tests.order.memory import MIB
from tests.order.running import asked, tfplace
from tests.tables.rewrite_docs import ROOT

BATCH = 64
SHARE = 0.5
PAIRS = 3
WAYS = {
    GRAPPLER: "Grappler, RECOMPUTATION_HEURISTICS",
    CHAINS: "tf.recompute_grad around chains of layers",
}


def made() -> dict[str, Any]:
    """The note, columns and rows of the result."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for model in (_cnn(), _unet()):
            path = f"{name}/{model.name}.keras"
            model.save(path)
            rows += _rows(model.name, path, Path(name))
    return {
        "note": f"batch {BATCH}, 64 x 64 pixels, one worker process of one core; a limit is "
        f"{SHARE:g} of what the step takes in the allocator's chunks; seconds of the placed step: "
        f"the median ratio of {PAIRS} pairs of runs, each with and without the plan",
        "columns": [
            {"name": "model"}, {"name": "way"},
            *({"name": n, "format": f} for n, f in (
                ("limit, MiB", ".0f"), ("predicted peak, MiB", ".0f"), ("peak, MiB", ".0f"),
                ("in chunks, MiB", ".0f"), ("step, s", ".2f"), ("over without", ".2f"),
            )),
            {"name": "says"},
        ],
        "rows": rows,
    }  # fmt: skip


def _cnn() -> keras.Model:
    """Nine convolutions with batch normalisation, as Keras 3 has it: of single ops."""
    layers = keras.layers
    x = inputs = layers.Input((64, 64, 3))
    for filters in (32, 64, 128):
        for _ in range(3):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.MaxPooling2D()(x)
    x = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, x, name="cnn")
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def _unet() -> keras.Model:
    """A U-Net of five levels (Ronneberger et al., 2015), of an eighth of its width."""
    layers = keras.layers
    x = inputs = layers.Input((64, 64, 3))
    skips = []
    for filters in (32, 64, 128, 256):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    for _ in range(2):
        x = layers.Conv2D(512, 3, padding="same", activation="relu")(x)
    for filters, skip in zip((256, 128, 64, 32), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(filters, 2, strides=2)(x)
        x = layers.Concatenate()([x, skip])
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    model = keras.Model(inputs, layers.Conv2D(2, 1, activation="softmax")(x), name="unet")
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def _rows(name: str, path: str, folder: Path) -> list[list[Any]]:
    whole, limited = _cluster(folder, "one_worker", None), ""
    given = _measured(path, whole)
    peak = next(iter(given["memory"]["given"].values()))
    limit = int(SHARE * peak["allocator_bytes"])
    limited = _cluster(folder, "small_worker", limit)
    seconds = given["given"]["median_seconds"]
    rows = [
        _row(name, "as it came", None, given, seconds),
        _row(name, "as it came", limit, _measured(path, limited), seconds),
    ]
    output = folder / f"{name}_placed"
    asked(
        "optimize", path, f"--cluster={limited}", f"--batch_size={BATCH}", "--shards=1",
        "--verify=structure", f"--output_dir={output}",
    )  # fmt: skip
    rows.append(_row(name, "tfplace", limit, _measured(str(output), limited), seconds))
    ratios = [rows[-1][-2]]
    for _ in range(PAIRS - 1):
        ratios.append(_seconds(str(output), limited) / _seconds(path, whole))
    rows[-1][-2] = sorted(ratios)[len(ratios) // 2]
    plain = _rival(path, PLAIN, 0)["median_seconds"]
    for way, label in WAYS.items():
        for most in (0, limit):
            found = _rival(path, way, most)
            taken = found.get("median_seconds")
            over = taken and taken / plain
            chunks = found.get("peak_bytes", 0) / MIB or None
            says = _oom(found["says"]) if "says" in found else "runs"
            rows.append([name, label, most / MIB or None, None, None, chunks, taken, over, says])
    return rows


def _cluster(folder: Path, name: str, num_bytes: int | None) -> str:
    """The file of a cluster of one worker."""
    cluster = {**asked("devices", "--cluster=workers:1")["cluster"], "name": name}
    if num_bytes is not None:
        cluster["devices"] = [{**cluster["devices"][0], "memory": num_bytes}]
    path = folder / f"{name}.json"
    path.write_text(json.dumps(cluster), encoding="utf-8")
    return str(path)


def _measured(model: str, cluster: str, *words: str) -> dict[str, Any]:
    flags = (f"--cluster={cluster}", f"--batch_size={BATCH}", "--steps=7", "--budget_seconds=20")
    done = tfplace("measure", model, *flags, "--memory", "--format=json", *words)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _seconds(model: str, cluster: str) -> float:
    return float(_measured(model, cluster, "--nomemory")["given"]["median_seconds"])


def _row(
    name: str, way: str, limit: int | None, measured: dict[str, Any], whole: float
) -> list[Any]:
    most = limit and limit / MIB
    peaks = measured["memory"]["given"]
    if isinstance(peaks, str):
        return [name, way, most, None, None, None, None, None, _oom(peaks)]
    peak, seconds = next(iter(peaks.values())), measured["given"]["median_seconds"]
    keys = ("predicted_bytes", "measured_bytes", "allocator_bytes")
    sizes = [peak[key] / MIB for key in keys]
    return [name, way, most, *sizes, seconds, seconds / whole, "runs"]


def _rival(path: str, way: str, num_bytes: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.order.keras_step", path, str(BATCH), way]
    done = subprocess.run([*command, str(num_bytes)], cwd=ROOT, capture_output=True, text=True)
    if not done.stdout:
        raise RuntimeError(f"running {way}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _oom(message: str) -> str:
    start = message.find("OOM when allocating")
    return message[start : message.find(" on /job", start)]
