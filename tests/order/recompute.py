"""Measured: Keras steps at half of what they take, beside what TensorFlow and Keras have for that.

The worker is a process of its own whose TensorFlow allocator gives out no more than the limit.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import keras

from graphs.errors import MemoryLimitError
from tests.order.keras_step import CHAINS, GRAPPLER, PLAIN
from tests.order.memory import MIB
from tests.order.running import asked, tfplace
from tests.tables.rewrite_docs import ROOT

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
        for model, batch in ((_cnn(), 64), (_unet(), 64), (_unet_3d(), 1), (_lstm(), 64)):
            path = f"{name}/{model.name}.keras"
            model.save(path)
            rows += _rows(model.name, path, batch, Path(name))
    return {
        "note": "batch 64, 64 x 64 pixels (unet_3d: one example of 48 x 48 x 48 voxels; lstm: 40 "
        "steps of 64 values), one worker process of one core; a limit is "
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


def _unet_3d() -> keras.Model:
    """A 3-D U-Net whose skips are added and whose convolutions are factored, 1x3x3 and 3x1x1.

    (Lee et al., "Superhuman accuracy on the SNEMI3D connectomics challenge", 2017; Tran et al., "A
    closer look at spatiotemporal convolutions", CVPR 2018.) TensorFlow's CPU kernel of the input
    gradient of a 3x3x3 convolution takes 27 times its output, which no plan spares.
    """
    layers = keras.layers

    def stage(x: Any, filters: int) -> Any:
        for kernel in 3 * [(1, 3, 3), (3, 1, 1)]:
            x = layers.Conv3D(filters, kernel, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        return x

    x = inputs = layers.Input((48, 48, 48, 1))
    skips = []
    for filters in (8, 16):
        x = stage(x, filters)
        skips.append(x)
        x = layers.MaxPooling3D()(x)
    x = stage(x, 32)
    for filters, skip in zip((16, 8), reversed(skips), strict=True):
        x = stage(layers.Add()([layers.Conv3DTranspose(filters, 2, strides=2)(x), skip]), filters)
    model = keras.Model(inputs, layers.Conv3D(2, 1, activation="softmax")(x), name="unet_3d")
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def _lstm() -> keras.Model:
    """An unrolled LSTM: one gradient of its weights for each of 40 steps."""
    layers = keras.layers
    inputs = layers.Input((40, 64))
    x = layers.Dense(10, activation="softmax")(layers.LSTM(256, unroll=True)(inputs))
    model = keras.Model(inputs, x, name="lstm")
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def _rows(name: str, path: str, batch: int, folder: Path) -> list[list[Any]]:
    whole, limited = _cluster(folder, "one_worker", None), ""
    given = _measured(path, batch, whole)
    peak = next(iter(given["memory"]["given"].values()))
    limit = int(SHARE * peak["allocator_bytes"])
    limited = _cluster(folder, "small_worker", limit)
    seconds = given["given"]["median_seconds"]
    rows = [
        _row(name, "as it came", None, given, seconds),
        _row(name, "as it came", limit, _measured(path, batch, limited), seconds),
    ]
    output = folder / f"{name}_placed"
    done = tfplace(
        "optimize", path, f"--cluster={limited}", f"--batch_size={batch}", "--shards=1",
        "--verify=structure", f"--output_dir={output}",
    )  # fmt: skip
    if done.returncode == MemoryLimitError.exit_status:
        least = re.search(r"it takes about [^,;]*", done.stderr)
        says = f"status 3: {least.group() if least else 'no plan was found'}"
        rows.append([name, "tfplace", limit / MIB, None, None, None, None, None, says])
    elif done.returncode:
        raise RuntimeError(done.stderr)
    else:
        rows.append(_row(name, "tfplace", limit, _measured(str(output), batch, limited), seconds))
        ratios = [rows[-1][-2]]
        for _ in range(PAIRS - 1):
            ratios.append(_seconds(str(output), batch, limited) / _seconds(path, batch, whole))
        rows[-1][-2] = sorted(ratios)[len(ratios) // 2]
    plain = _rival(path, batch, PLAIN, 0)["median_seconds"]
    for way, label in WAYS.items():
        for most in (0, limit):
            found = _rival(path, batch, way, most)
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


def _measured(model: str, batch: int, cluster: str, *words: str) -> dict[str, Any]:
    flags = (f"--cluster={cluster}", f"--batch_size={batch}", "--steps=7", "--budget_seconds=20")
    done = tfplace("measure", model, *flags, "--memory", "--format=json", *words)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _seconds(model: str, batch: int, cluster: str) -> float:
    given = _measured(model, batch, cluster, "--nomemory")["given"]
    if isinstance(given, str):
        raise RuntimeError(f"measuring {model}: {given}")
    return float(given["median_seconds"])


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


def _rival(path: str, batch: int, way: str, num_bytes: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.order.keras_step", path, str(batch), way]
    done = subprocess.run([*command, str(num_bytes)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode < 0 and "ran out of memory" in done.stderr:  # some kernels crash then
        return {"says": f"ran out of memory, {signal.Signals(-done.returncode).name}"}
    if not done.stdout:
        raise RuntimeError(f"running {way}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _oom(message: str) -> str:
    start = message.find("OOM when allocating")
    return message if start < 0 else message[start : message.find(" on /job", start)]
