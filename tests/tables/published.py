"""Predicted against published steps: python -m tests.tables.published [--scaling]

Builds each zoo graph, prices its kernels on the GPU and adds them up, as a GPU runs one after the
other. With --scaling, simulates data parallelism on several GPUs instead, the same batch on each:
plain, and as `auto` places it. Writes results/predicted_and_published.json, or published_scaling.json;
`python -m tests.tables.rewrite_docs --nodemo` then writes the page. None of these networks was used
to fit a price. About ten minutes, or half an hour.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import sys
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
from tests.tables.rewrite_docs import ROOT, origin_of
from tests.tables.suite import Wanted, bench
from tfplace.algorithms.placers.one_shot import single_devices
from tfplace.choosing.data_parallel import data_parallel_candidate
from tfplace.preparing.loaded_model import load_model
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.simulation.simulated import simulated

SEARCH_TRIALS = 4_000
"""Of each search for several GPUs."""
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


class Scaling(NamedTuple):
    """Images a second and GPU on several GPUs over those on one, the same batch on each."""

    network: str
    batch: int
    cluster: str
    published: float
    source: str


def _k80(network: str, batch: int, *images: float) -> list[Scaling]:
    """Images a second on 1, 2, 4 and 8 GPUs of a p2.8xlarge."""
    pairs = zip((2, 4, 8), images[1:], strict=True)
    return [
        Scaling(network, batch, f"k80x{gpus}", each / gpus / images[0], _2017)
        for gpus, each in pairs
    ]


SCALING = (
    *_k80("vgg16", 32, 36.3, 69.4, 141, 260),
    *_k80("alexnet", 512, 684, 1244, 2479, 4853),
    *_k80("resnet50_v1", 64, 51.5, 98.0, 195, 384),
    *_k80("inception_v3", 64, 30.8, 58.7, 117, 230),
    *_k80("resnet152", 32, 19.7, 37.6, 74.9, 149),
    Scaling("resnet50", 128, "v100x8", 3170 / 8 / 412, _NVIDIA),
)


def predicted_scaling(row: Scaling) -> tuple[float, float]:
    """Seconds of one GPU's step over those of as many shards: shard i on GPU i, and searched."""
    gpus = sum(device.type == "GPU" for device in named(row.cluster).devices)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "1.pb")
        zoo.write(zoo.build(row.network, batch_size=row.batch), path)
        one = prepare(ProblemOptions(path, cluster=row.cluster), trace=False).problem
        alone = min(simulated(one, each).known_schedule().makespan for each in single_devices(one))
        path = str(Path(folder) / f"{gpus}.pb")
        zoo.write(zoo.build(row.network, batch_size=gpus * row.batch), path)
        split = ProblemOptions(path, cluster=row.cluster, num_shards=gpus)
        plain = data_parallel_candidate(prepare(split, trace=False))
    assert plain is not None
    model = f"{row.network}:batch_size={gpus * row.batch}"
    [cell] = bench([Wanted(model, row.cluster, "auto", 1, gpus, SEARCH_TRIALS)])
    return alone / plain.step_seconds, alone / cell["step_seconds"]


def scaling() -> dict[str, object]:
    """The result file of several GPUs."""
    found = []
    for row in SCALING:
        plain, searched = predicted_scaling(row)
        print(row, plain, searched, flush=True)
        name = f"{row.network}, {row.batch}"
        difference = searched - row.published
        found.append([row.cluster, name, plain, searched, row.published, difference, row.source])
    return {
        "command": "python -m tests.tables.published --scaling",
        "note": "images a second and GPU over those of one GPU, the same batch on each; shard i on "
        f"GPU i, and as `auto` places as many shards in {SEARCH_TRIALS:,} trials (`tfplace bench "
        "--shards=8`). Theirs: parameters on the CPU (Inception) or on GPUs, batch "
        "statistics of each GPU; here those of the whole batch",
        "columns": [
            {"name": "GPUs"},
            {"name": "network, batch on each"},
            {"name": "shard i on GPU i", "format": ".3f"},
            {"name": "searched", "format": ".3f"},
            {"name": "published", "format": ".3f"},
            {"name": "searched - published", "format": "+.3f"},
            {"name": "source"},
        ],
        "rows": found,
    }


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


def steps() -> dict[str, object]:
    """The result file of single GPUs."""
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
    return {
        "command": "python -m tests.tables.published",
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


def main() -> None:
    """Makes one of the two result files."""
    is_scaling = "--scaling" in sys.argv[1:]
    name = "published_scaling" if is_scaling else "predicted_and_published"
    origin = {
        **origin_of(ROOT),
        "machine": "prices hang on no machine",
        "date": datetime.date.today().isoformat(),
    }
    text = json.dumps({**origin, **(scaling() if is_scaling else steps())}, indent=2)
    (DATA.parent / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
