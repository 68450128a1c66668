"""Kernels that others timed on GPUs, as the prices by class take them; the CSVs name sources."""

import csv
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphs.cluster import Device
from graphs.clusters.named_clusters import named
from graphs.pricing import kernel_classes
from graphs.pricing.costs import flops_per_second

DATA = Path(__file__).parents[2] / "tfplace/docs/benchmarks/results/gpu_data"
CLUSTERS = {
    "H200": "h100x8",
    "K80": "k80x2",
    "K40": "k40x8",
    "P100": "p100x2",
    "V100": "v100x4",
    "T4": "t4x4",
}
H200_BYTES_PER_SECOND = 4.8e12
"""An H200 is an H100 with quicker memory."""
SESSION_MS = {"K80": 0.23, "K40": 0.17, "P100": 0.35, "V100": 0.15}
"""What a Session.run itself takes in CDE's figures."""


class Case(NamedTuple):
    """One timed kernel.

    Attributes:
      source: "deepbench", "cde" or "aceso".
      small, sums: as `kernel_classes.KERNEL` has them.
      moved: bytes of the kernel.
      extra_bytes, extra_ops: of the ops that were timed with it.
    """

    gpu: str
    source: str
    kind: str
    small: float
    sums: float
    flops: float
    moved: float
    extra_bytes: float
    extra_ops: int
    seconds: float


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a CSV, without its line of sources."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def cases() -> list[Case]:
    """All kernels on GPUs of the named clusters."""
    found = [*_deepbench_products(), *_deepbench_convolutions(), *_cde(), *_aceso()]
    return [case for case in found if case.gpu in CLUSTERS and case.seconds > 1e-5]


def predicted(timed: list[Case], precision: str = "fp32") -> np.ndarray:
    """f8[K]: seconds by `kernel_classes`, with the ops that were timed beside each kernel."""
    names = kernel_classes.class_numbers()
    found = np.zeros(len(timed))
    for gpu in {case.gpu for case in timed}:
        device = gpu_of(gpu)
        rates = kernel_classes.rates_of(device.architecture, precision)
        at = [i for i, case in enumerate(timed) if case.gpu == gpu]
        own = [timed[i] for i in at]
        kernels = kernel_classes.no_kernels(len(own))
        kernels["kind"] = [names[case.kind] for case in own]
        kernels["small"] = [case.small for case in own]
        kernels["sums"] = [case.sums for case in own]
        flops, moved, extra, ops = np.array(
            [(c.flops, c.moved, c.extra_bytes, c.extra_ops) for c in own]
        ).T
        peak, bandwidth = flops_per_second(device), device.bandwidth_bytes_per_second
        seconds = kernel_classes.gpu_seconds(
            flops, moved / bandwidth, kernels, rates, peak, device.cores
        )
        beside = extra / bandwidth / rates.share[names["elementwise"]] + ops * rates.op_seconds
        found[at] = np.maximum(seconds, rates.op_seconds) + beside
    return found


def gpu_of(name: str) -> Device:
    """The GPU of a timed kernel."""
    device = named(CLUSTERS[name]).devices[1]
    if name == "H200":
        return dataclasses.replace(device, bandwidth_bytes_per_second=H200_BYTES_PER_SECOND)
    return device


def h200_cases(precision: str) -> list[Case]:
    """Products and convolutions of fp32 values that an H200 ran, of one precision."""
    kept = json.loads((DATA / "gpu_h200_kernels.json").read_text(encoding="utf-8"))
    names = [column["name"] for column in kept["columns"]]
    found: list[Case] = []
    for row in (dict(zip(names, each, strict=True)) for each in kept["rows"]):
        attributes, shapes, seconds = row["attrs"], row["shapes"], row["seconds"]
        is_wanted = (row["mode"], row["dtype"], row["suspect"]) == (precision, "f32", None)
        if not is_wanted or not seconds or seconds <= 0 or attributes.get("groups", 1) != 1:
            continue
        if row["op"] == "MatMul" and shapes[0][1] == shapes[1][0]:
            (m, k), n = shapes[0], shapes[1][1]
            found.append(_product("H200", "h200", m, n, k, 0, seconds))
        elif row["op"] in _WAYS:
            image, (height, width, channels, count) = attributes["input"], attributes["filter"]
            if attributes["format"] == "NCHW":
                image = [image[0], *image[2:], image[1]]
            edges = tuple(math.ceil(edge / attributes["stride"]) for edge in image[1:3])
            each = tuple(seconds if way == row["op"] else "" for way in _WAYS)
            found += _convolutions(
                "H200", "h200", (*image[:3], channels), (count, height, width), edges,
                attributes["stride"], each,
            )  # fmt: skip
    return found


_WAYS = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")


def _numbers(row: Mapping[str, str], names: str) -> list[int]:
    return [int(float(row[name] or 0)) for name in names.split()]


def _product(gpu: str, source: str, m: int, n: int, k: int, ops: int, seconds: float) -> Case:
    moved = 4.0 * (m * n + m * k + n * k)
    flops = 2.0 * m * n * k
    return Case(
        gpu, source, "product", min(m, n), m * n, flops, moved, 8.0 * ops * m * n, ops, seconds
    )


def _convolutions(
    gpu: str,
    source: str,
    image: tuple[int, int, int, int],
    filters: tuple[int, int, int],
    output: tuple[int, int],
    stride: int,
    seconds: tuple[str | float, ...],
    extra: tuple[float, int] = (0.0, 0),
) -> Iterator[Case]:
    batch, height, width, channels = image
    count, rows_, columns = filters
    pixels = batch * output[0] * output[1]
    moved = 4.0 * (batch * height * width * channels + pixels * count)
    moved += 4.0 * count * channels * rows_ * columns
    kind = kernel_classes.convolution_class((rows_, columns), (stride,))
    sides = {
        "": (pixels, count),
        " input gradient": (batch * height * width, channels),
        " filter gradient": (channels * rows_ * columns, count),
    }
    flops = 2.0 * pixels * count * channels * rows_ * columns
    for (way, (m, n)), each in zip(sides.items(), seconds, strict=False):
        if each not in ("", None):
            yield Case(gpu, source, kind + way, min(m, n), m * n, flops, moved, *extra, float(each))


def _deepbench_products() -> Iterator[Case]:
    for row in rows("deepbench_gemm.csv"):
        m, n, k = _numbers(row, "m n k")
        yield _product(row["gpu"], "deepbench", m, n, k, 0, float(row["forward_ms"]) / 1e3)


def _deepbench_convolutions() -> Iterator[Case]:
    for row in rows("deepbench_conv.csv"):
        b, c, h, w, count, r, s = _numbers(row, "batch c h w filters r s")
        ph, pw, sh, sw = _numbers(row, "pad_h pad_w stride_h stride_w")
        output = ((h + 2 * ph - r) // sh + 1, (w + 2 * pw - s) // sw + 1)
        names = ("forward_ms", "backward_inputs_ms", "backward_weights_ms")
        seconds = tuple(float(row[n]) / 1e3 if row[n] else "" for n in names)
        image, filters = (b, h, w, c), (count, r, s)
        yield from _convolutions(
            row["gpu"], "deepbench", image, filters, output, max(sh, sw), seconds
        )


def _cde() -> Iterator[Case]:
    """NHWC without Grappler: each convolution turns its input and its output round."""
    for row in rows("cde_tf_layers.csv"):
        seconds = (float(row["median_ms"]) - SESSION_MS[row["gpu"]]) / 1e3
        b, c, count, bias, activation = _numbers(
            row, "batch channels_in channels_out bias activation"
        )
        ops = bias + (activation > 0)
        if row["layer"] == "dense":
            yield _product(row["gpu"], "cde", b, count, c, ops, seconds)
            continue
        size, kernel, stride, is_same = _numbers(row, "input_size kernel stride padding")
        edge = math.ceil(size / stride) if is_same else (size - kernel) // stride + 1
        if edge < 1:
            continue
        pixels = b * edge * edge * count
        extra = 8.0 * ops * pixels + 8.0 * (b * c * size * size + pixels), ops
        image, filters = (b, size, size, c), (count, kernel, kernel)
        yield from _convolutions(
            row["gpu"], "cde", image, filters, (edge, edge), stride, (seconds,), extra
        )


def _aceso() -> Iterator[Case]:
    for row in rows("aceso_v100_ops.csv"):
        if row["kind"] == "conv":
            b, size, c, count, kernel, stride = _numbers(
                row, "batch input_size channels_in channels_out kernel stride"
            )
            edge = math.ceil(size / stride)
            image, filters = (b, size, size, c), (count, kernel, kernel)
            seconds = (float(row["forward_us"]) / 1e6,)
            yield from _convolutions("V100", "aceso", image, filters, (edge, edge), stride, seconds)
