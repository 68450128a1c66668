"""Predicted against published steps: python -m tests.tables.published [--scaling]

Builds each zoo graph, prices its kernels on the GPU and adds them up, as a GPU runs one after the
other. With --scaling, simulates several GPUs instead, the same batch on each. Writes
results/predicted_and_published.json, or published_scaling.json; then `python -m
tests.tables.rewrite_docs --nodemo` writes the page. None of these networks was used to fit
a price. About ten minutes, or half an hour.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from graphs import zoo
from graphs.clusters.named_clusters import named
from graphs.names import op_of
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

_BACKWARD = re.compile("gradients/|apply")
_CHANGES = re.compile("Assign|Resource.*Apply")
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
    group: str = ""
    is_forward: bool = False


_2017 = "tf_benchmarks_2017.csv"
_NVIDIA = "nvidia_training.csv"
_H200 = "gpu_h200.json"
_SMALL = "V100, fp32, small batches"
_SMALL_SOURCE = "GPU_PRICES.md, section 2"
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
    Row("resnet50", 1, "v100x4", "fp32", 5.8, _SMALL_SOURCE, group=_SMALL, is_forward=True),
    Row("resnet50", 16, "v100x4", "fp32", 16e3 / 196, _SMALL_SOURCE, group=_SMALL),
    Row("resnet50", 128, "v100x4", "fp32", 128e3 / 324, _SMALL_SOURCE, group=_SMALL),
)


class Scaling(NamedTuple):
    """Images a second and GPU on several GPUs over those on one, the same batch on each."""

    network: str
    batch: int
    cluster: str
    published: float


def _images(gpu: str, network: str, batch: int, *images: float) -> list[Scaling]:
    """Images a second on 1, 2, 4 and 8 GPUs of a host, as far as they are given."""
    return [
        Scaling(network, batch, f"{gpu}x{2**i}", each / 2**i / images[0])
        for i, each in enumerate(images)
        if i and each
    ]


SCALING = (
    *_images("k80", "vgg16", 32, 36.3, 69.4, 141, 260),
    *_images("k80", "alexnet", 512, 684, 1244, 2479, 4853),
    *_images("k80", "resnet50_v1", 64, 51.5, 98.0, 195, 384),
    *_images("k80", "inception_v3", 64, 30.8, 58.7, 117, 230),
    *_images("k80", "resnet152", 32, 19.7, 37.6, 74.9, 149),
    *_images("p100", "vgg16", 64, 154, 295, 584),
    *_images("p100", "alexnet", 512, 2987, 5658, 10509),
    *_images("p100", "resnet50_v1", 64, 219, 422, 852),
    *_images("p100", "inception_v3", 64, 142, 284, 569),
    *_images("p100", "resnet152", 64, 91.8, 181, 356),
    *_images("v100", "resnet50", 128, 412, 0, 0, 3170),
)


def towers(graph_def: tf.compat.v1.GraphDef, gpus: int) -> tf.compat.v1.GraphDef:
    """The step of as many GPUs as tf_cnn_benchmarks builds it, with its devices.

    A tower on each GPU computes a batch of its own, with statistics of its own. The CPU has all
    variables and sums their gradients (variable_update=parameter_server).

    Args:
      graph_def: the step of one GPU, with resource variables.
    """
    made = type(graph_def)(versions=graph_def.versions)
    updates = {node.name for node in graph_def.node if _CHANGES.match(node.op)}
    optimizer = {node.name for node in graph_def.node if node.name.startswith("apply/")}
    kinds = {"VarHandleOp", "NoOp"}
    shared = {node.name for node in graph_def.node if node.op in kinds} | updates | optimizer

    def of_tower(name: str, tower: int) -> str:
        control, op = name[:1] == "^", name.lstrip("^")
        return name if op_of(op) in shared else f"{'^' * control}tower_{tower}/{op}"

    for node in graph_def.node:
        for tower in range(1 if node.name in shared else gpus):
            copy = made.node.add()
            copy.CopyFrom(node)
            copy.attr.pop("_class", None)
            copy.name = of_tower(node.name, tower)
            copy.input[:] = [of_tower(name, tower) for name in node.input]
            is_shared = node.name in shared or node.op == "ReadVariableOp"
            copy.device = "/device:CPU:0" if is_shared else f"/device:GPU:{tower}"
        for position, name in enumerate(node.input if node.name in updates & optimizer else ()):
            if op_of(name) not in shared:
                total = made.node.add(name=f"{node.name}/sum_{position}", op="AddN")
                total.input.extend(of_tower(name, tower) for tower in range(gpus))
                total.attr["N"].i, total.attr["T"].type = gpus, node.attr["T"].type
                total.device = "/device:CPU:0"
                copy.input[position] = total.name
    made.node.add(name="loss", op="Identity", input=["tower_0/loss"], device="/device:GPU:0")
    made.node[-1].attr["T"].type = tf.float32.as_datatype_enum
    return made


def of_towers(row: Scaling, gpus: int, folder: str) -> float:
    """Seconds of the step that tf_cnn_benchmarks builds."""
    path = str(Path(folder) / f"towers_{gpus}.pb")
    graph = zoo.build(row.network, batch_size=row.batch).graph
    Path(path).write_bytes(towers(graph.as_graph_def(), gpus).SerializeToString())
    instance = prepare(ProblemOptions(path, cluster=row.cluster), trace=False).instance
    return simulated(instance.problem, instance.given).known_schedule().makespan


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
        gpus = sum(device.type == "GPU" for device in named(row.cluster).devices)
        with tempfile.TemporaryDirectory() as folder:
            theirs = of_towers(row, 1, folder) / of_towers(row, gpus, folder)
        plain, searched = predicted_scaling(row)
        print(row, theirs, plain, searched, flush=True)
        difference = theirs - row.published
        name = f"{row.network}, {row.batch}"
        found.append([row.cluster, name, theirs, row.published, difference, plain, searched])
    return {
        "command": "python -m tests.tables.published --scaling",
        "note": "images a second and GPU over those of one GPU, the same batch on each. Towers: "
        "the graph that tf_cnn_benchmarks builds, each GPU with batch statistics of its own, "
        "variables on the CPU (published with NCCL: V100, and P100's AlexNet and VGG16). By "
        "tfplace: the whole batch in shards, with its statistics; shard i on GPU i, and as `auto` "
        f"places as many shards in {SEARCH_TRIALS:,} trials. {_2017}; V100: {_NVIDIA}",
        "columns": [
            {"name": "GPUs"},
            {"name": "network, batch on each"},
            {"name": "predicted, towers", "format": ".3f"},
            {"name": "published", "format": ".3f"},
            {"name": "difference", "format": "+.3f"},
            {"name": "shard i on GPU i", "format": ".3f"},
            {"name": "shards, searched", "format": ".3f"},
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
    is_backward = np.array([bool(_BACKWARD.match(name)) for name in model.flat.nodes])
    found = []
    for row in rows:
        gpu = dataclasses.replace(named(row.gpu).devices[1], precision=row.precision)
        gpu = dataclasses.replace(gpu, frequency_mhz=row.mhz or gpu.frequency_mhz)
        seconds = node_seconds(model.flat, asked, gpu)
        counted = np.isfinite(seconds) & ~(is_backward & row.is_forward)
        found.append(1e3 * float(seconds[counted].sum()))
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
        device = row.group or f"{row.gpu.partition('x')[0].upper()}, {row.precision}"
        if not row.group:
            ratios.setdefault(device, []).append(ratio)
        name = f"{row.network}, {row.batch}{', forward' * row.is_forward}"
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
