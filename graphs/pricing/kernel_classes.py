"""How fast a GPU runs a kernel, by the kernel's class; kernel_classes.json has the figures.

  work = flops / (peak * rate) * (1 + small / s) * (1 + depth / k) * (1 + 1000 * fill * SMs / n)
  move = bytes / (bandwidth * share)
  seconds = max(floor + (work ** 4 + move ** 4) ** (1 / 4), op_us)

s is the smaller side of the product that the kernel is (a convolution's channels or its pixels),
k the length of its sums, n how many sums there are: few of either don't fill a GPU. `rate` is a
share of the device's fp32 peak; Winograd's 3x3 convolutions, TF32 and half precision exceed 1.
Half sizes hold for all GPUs, rates for one. They are fitted on kernels; networks only judge them.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphs.building.shapes import TensorProperties
from graphs.flat_graph import FlatGraph
from graphs.host.text_table import json_beside
from graphs.names import data_inputs, tensor_of
from graphs.op_graph import FloatArray
from graphs.protos import JsonObject, NodeDef, attribute

KERNEL = np.dtype([("kind", "i1"), ("small", "f8"), ("sums", "f8"), ("half", "?")])
"""A kernel: which class, its product's smaller side, its outputs, and if it has 16-bit floats."""


class Rates(NamedTuple):
    """Of the classes of one GPU, each f8[classes]; see the module. `half`: the rate of 16 bits."""

    rate: FloatArray
    half: FloatArray
    small: FloatArray
    depth: FloatArray
    fill: FloatArray
    floor: FloatArray
    share: FloatArray
    op_seconds: float


@functools.cache
def _figures() -> JsonObject:
    return json_beside(__file__)


@functools.cache
def class_numbers() -> Mapping[str, int]:
    """{class: its number}, as `KERNEL` has it."""
    names = [name for name in _figures()["classes"] if name not in ("source", "columns")]
    return {name: number for number, name in enumerate(names)}


@functools.cache
def class_of_op() -> Mapping[str, str]:
    """{op type: its class of kernels}; of a convolution without its kernel's shape."""
    ops: Mapping[str, str] = _figures()["ops"]
    return {op: kind for kind, types in ops.items() for op in types.split()}


@functools.cache
def rates_of(architecture: str, precision: str) -> Rates:
    """What kernels reach on GPUs of this compute capability, or of the next older one with figures.

    Args:
      architecture: "7.0".
      precision: of products and convolutions of fp32 values: "fp32", or "tf32" where the GPU has
        it, as it is TensorFlow's default.
    """
    gpus = _figures()["gpus"]
    older = [known for known in gpus if _version(known) <= _version(architecture)]
    gpu = gpus[max(older, key=_version) if older else min(gpus, key=_version)]
    numbers, moving = class_numbers(), _figures()["of_elementwise"]
    fast = gpu.get("tf32_rates", gpu["rates"])
    rate, half = np.full((2, len(numbers)), 0.5)
    rate[: len(fast)] = gpu["rates"] if precision == "fp32" else fast
    half[: len(fast)] = gpu["half_times"] * np.array(fast)
    share = np.array([moving.get(name, 1.0) * gpu["memory_share"] for name in numbers])
    small, depth, fill, floor = np.array([_figures()["classes"][name] for name in numbers]).T
    return Rates(rate, half, small, depth, fill, floor * 1e-6, share, gpu["op_us"] * 1e-6)


def _version(architecture: str) -> tuple[int, ...]:
    return tuple(int(part) for part in architecture.split(".") if part.isdigit())


def kernels_of(flat: FlatGraph, properties: TensorProperties) -> npt.NDArray[np.void]:
    """KERNEL[nodes]; nodes of one `properties.first` are alike."""
    nodes, first = flat.graph_def.node, properties.first
    found = no_kernels(len(nodes))
    for i in range(len(nodes)) if first is None else np.flatnonzero(first == np.arange(len(first))):
        node = nodes[i]
        kind = class_of_op().get(node.op, "elementwise")
        if kind.startswith(("product", "convolution")):
            found[i] = _product(node, kind, properties)
        else:
            found["kind"][i] = class_numbers()[kind]
    return found if first is None else found[first]


def no_kernels(count: int) -> npt.NDArray[np.void]:
    """KERNEL[count] of ops that only move their bytes."""
    found = np.zeros(count, KERNEL)
    found["kind"] = class_numbers()["elementwise"]
    found["small"] = found["sums"] = math.inf
    return found


def _product(
    node: NodeDef, kind: str, properties: TensorProperties
) -> tuple[int, float, float, bool]:
    """One KERNEL of an op that multiplies; sizes that aren't known fill the GPU."""
    shape = properties.shape(f"{node.name}:0") or ()
    half = not {"float16", "bfloat16"}.isdisjoint(properties.dtype_of[node.name])
    if kind != "product":
        way = kind.removeprefix("convolution")
        holder = f"{node.name}:0" if "filter" in way else tensor_of(data_inputs(node)[1])
        kernel = properties.shape(holder) or ()
        kind = convolution_class(kernel[:-2], attribute(node, "strides").list.i) + way
    if not shape or min(shape) < 1:
        return class_numbers()[kind], math.inf, math.inf, half
    outputs = float(math.prod(shape))
    if kind == "product":
        small = float(min(shape[-2:]))
    else:
        is_first = attribute(node, "data_format").s[:2] == b"NC" and "Filter" not in node.op
        channels = shape[1] if is_first else shape[-1]
        small = min(channels, outputs / channels)
    return class_numbers()[kind], small, outputs, half


def convolution_class(sizes: Sequence[int], strides: Iterable[int]) -> str:
    """The class of a convolution with a kernel of these sizes, without its `way`."""
    if {*strides} != {1} or len(sizes) != 2 or sizes[0] != sizes[1]:
        return "convolution"
    return {1: "1x1", 3: "3x3"}.get(sizes[0], "wide")


def gpu_seconds(
    flops: FloatArray,
    moving: FloatArray,
    kernels: npt.NDArray[np.void],
    rates: Rates,
    peak: float,
    cores: int,
) -> FloatArray:
    """f8[K]: the seconds of K kernels, by the formula of this module.

    Args:
      flops: f8[K].
      moving: f8[K] seconds that the kernel's bytes take at the memory's nominal rate.
      kernels: KERNEL[K].
      peak: its fp32 flops per second.
      cores: its multiprocessors.
    """
    kind, sums = kernels["kind"], kernels["sums"]
    rate = np.where(kernels["half"], rates.half[kind], rates.rate[kind])
    length = np.maximum(flops / (2.0 * sums), 1.0)
    length[np.isinf(sums)] = np.inf
    slow = (1 + rates.small[kind] / kernels["small"]) * (1 + rates.depth[kind] / length)
    work = flops / (peak * rate) * slow * (1 + 1e3 * rates.fill[kind] * cores / sums)
    together = (work**4 + (moving / rates.share[kind]) ** 4) ** 0.25
    seconds: FloatArray = np.where(together > 0, rates.floor[kind], 0.0) + together
    return seconds
