"""Predicted against published steps of one GPU: python -m tests.tables.published

Builds each zoo graph, prices its kernels on the GPU and adds them up, as a GPU runs one after the
other. Writes results/predicted_and_published.json; `python -m tests.tables.rewrite_docs --nodemo`
then writes the page. None of these networks was used to fit a price. About ten minutes.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphs import zoo
from graphs.clusters.named_clusters import named
from graphs.pricing.costs import node_seconds
from graphs.pricing.grappler_costs import with_defaults
from graphs.pricing.node_work import node_work
from tests.tables.kernel_cases import DATA
from tfplace.preparing.loaded_model import load_model
from tfplace.preparing.options import ProblemOptions

RESULT = DATA.parent / "predicted_and_published.json"
_P100_SXM2_MHZ = 1480


class Row(NamedTuple):
    """A step of one GPU that somebody published."""

    network: str
    batch: int
    gpu: str
    precision: str
    milliseconds: float
    source: str
    mhz: int = 0


_2017 = "tf_benchmarks_2017.csv"
_NVIDIA = "nvidia_training.csv"
_H200 = "gpu_h200.json"
ROWS = (
    Row("inception_v3", 32, "k80x2", "fp32", 1081, _2017),
    Row("resnet50_v1", 32, "k80x2", "fp32", 650, _2017),
    Row("resnet50_v1", 64, "k80x2", "fp32", 1238, _2017),
    Row("resnet152", 32, "k80x2", "fp32", 1612, _2017),
    Row("vgg16", 32, "k80x2", "fp32", 893, _2017),
    Row("alexnet", 512, "k80x2", "fp32", 764, _2017),
    Row("inception_v3", 64, "p100x2", "fp32", 450.7, _2017, _P100_SXM2_MHZ),
    Row("resnet50_v1", 32, "p100x2", "fp32", 164.1, _2017, _P100_SXM2_MHZ),
    Row("resnet50_v1", 64, "p100x2", "fp32", 292.2, _2017, _P100_SXM2_MHZ),
    Row("vgg16", 32, "p100x2", "fp32", 222.2, _2017, _P100_SXM2_MHZ),
    Row("vgg16", 64, "p100x2", "fp32", 415.6, _2017, _P100_SXM2_MHZ),
    Row("alexnet", 512, "p100x2", "fp32", 171.4, _2017, _P100_SXM2_MHZ),
    Row("resnet50", 128, "v100x4", "fp32", 310.7, _NVIDIA),
    Row("resnet50", 256, "a100x8", "tf32", 281.6, _NVIDIA),
    Row("resnet50", 64, "h100x8", "tf32", 50.0, _H200),
    Row("resnet50", 64, "h100x8", "fp32", 105.0, _H200),
    Row("vgg16", 64, "h100x8", "tf32", 42.7, _H200),
    Row("vgg16", 64, "h100x8", "fp32", 92.7, _H200),
    Row("alexnet", 512, "h100x8", "tf32", 20.7, _H200),
    Row("alexnet", 512, "h100x8", "fp32", 43.3, _H200),
    Row("inception_v3", 32, "h100x8", "tf32", 52.3, _H200),
    Row("inception_v3", 32, "h100x8", "fp32", 82.3, _H200),
    Row("resnet152", 32, "h100x8", "tf32", 57.5, _H200),
)


def predicted_ms(rows: list[Row]) -> list[float]:
    """Of rows with the same network and batch."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.pb")
        zoo.write(zoo.build(rows[0].network, batch_size=rows[0].batch), path)
        model = load_model(ProblemOptions(path))
        asked = node_work(model.flat, model.properties)
    work = with_defaults(model.flat, model.properties, asked.work)
    asked = dataclasses.replace(asked, work=work)
    found = []
    for row in rows:
        gpu = dataclasses.replace(named(row.gpu).devices[1], precision=row.precision)
        gpu = dataclasses.replace(gpu, frequency_mhz=row.mhz or gpu.frequency_mhz)
        seconds = node_seconds(model.flat, asked, gpu)
        found.append(1e3 * float(seconds[np.isfinite(seconds)].sum()))
    return found


def main() -> None:
    found: list[list[object]] = []
    ratios: dict[str, list[float]] = {}
    predicted: dict[Row, float] = {}
    for key in dict.fromkeys((row.network, row.batch) for row in ROWS):
        same = [row for row in ROWS if (row.network, row.batch) == key]
        predicted |= dict(zip(same, predicted_ms(same), strict=True))
    for row in ROWS:
        ratio = predicted[row] / row.milliseconds
        device = f"{row.gpu.partition('x')[0].upper()}, {row.precision}"
        ratios.setdefault(device, []).append(ratio)
        name = f"{row.network}, {row.batch}"
        found.append([device, name, predicted[row], row.milliseconds, ratio, row.source])
    for device, each in ratios.items():
        mean = math.exp(sum(map(math.log, each)) / len(each))
        spread = f"{min(each):.2f} to {max(each):.2f}"
        found.append([device, f"geometric mean ({spread})", None, None, mean, ""])
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    result = {
        "command": "python -m tests.tables.published",
        "machine": "prices hang on no machine",
        "commit": commit.stdout.strip(),
        "date": datetime.date.today().isoformat(),
        "transcribed": False,
        "note": "milliseconds a step; sources are in gpu_data and gpu_h200.json (an "
        "H200, against the H100's prices). P100 at the SXM2's 1,480 MHz. The zoo's graphs have "
        "an auxiliary head (Inception), weight decay and another optimizer; NVIDIA's run XLA",
        "columns": [
            {"name": "GPU"},
            {"name": "network, batch"},
            {"name": "predicted", "format": ",.0f"},
            {"name": "published", "format": ",.0f"},
            {"name": "predicted / published", "format": ".2f"},
            {"name": "source"},
        ],
        "rows": found,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
