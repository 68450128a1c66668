"""Fits the half sizes and rates of kernel_classes.json: python -m tests.tables.kernel_fit.

Half sizes hold for all GPUs, rates for one. A source may be slower by a factor of its own for a
class, the same on all GPUs: CDE's TensorFlow of 2018 reaches half of what DeepBench's cuDNN does.
So a GPU that only CDE timed has the rate that the others' DeepBench figures say. No network is
looked at. The last lines hold the table as it is against the kernels.
"""

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from graphs.pricing import kernel_classes
from graphs.pricing.costs import flops_per_second
from tests.tables.kernel_cases import Case, cases, gpu_of, h200_cases, predicted

_SOURCES = ("deepbench", "cde", "aceso")
_LEAST = np.log([0.5, 0.5, 0.01, 4e-6])
_MOST = np.log([100, 500, 30, 30e-6])
_EXPECTED = np.log([10, 30, 1, 8e-6])


def fit(own: list[Case]) -> tuple[np.ndarray, dict[str, float], dict[str, float]]:
    """Half sizes and fixed seconds f8[4], {GPU: rate} and {source: its factor} of one class."""
    gpus, gpu = np.unique([case.gpu for case in own], return_inverse=True)
    source = np.array([_SOURCES.index(case.source) for case in own])
    counts = np.array(
        [np.sum((gpu == g) & (source == s)) for g, s in zip(gpu, source, strict=True)]
    )
    weight = np.minimum(1, 40 / counts) ** 0.5
    devices = [gpu_of(name) for name in gpus]
    shares = [kernel_classes.rates_of(d.architecture, "fp32").share[-1] for d in devices]
    peak, cores, bandwidth, share = np.array(
        [
            (flops_per_second(d), d.cores, d.bandwidth_bytes_per_second, s)
            for d, s in zip(devices, shares, strict=True)
        ]
    )[gpu].T
    small, sums, flops, moved, extra, ops, seconds = np.array(
        [(c.small, c.sums, c.flops, c.moved, c.extra_bytes, c.extra_ops, c.seconds) for c in own]
    ).T
    length, speed = np.maximum(flops / 2 / sums, 1), bandwidth * share

    def residuals(x: np.ndarray) -> np.ndarray:
        a, b, c, floor = np.exp(x[:4])
        rate = np.exp(x[6:][gpu]) * np.r_[1, np.exp(x[4:6])][source]
        work = flops / peak / rate * (1 + a / small) * (1 + b / length)
        work *= 1 + 1e3 * c * cores / sums
        each = floor + (work**4 + (moved / speed) ** 4) ** 0.25 + extra / speed + ops * floor
        wanted = 0.02 * (x[:3] - _EXPECTED[:3])  # where the kernels don't say
        return np.r_[weight * np.log(each / seconds), wanted, 0.05 * x[4:6], 0.01 * x[6:]]

    limits = np.r_[_LEAST, [-3, -3], [-4.0] * len(gpus)], np.r_[_MOST, [3, 3], [3.0] * len(gpus)]
    start = np.r_[_EXPECTED, 0, 0, np.zeros(len(gpus))]
    x = least_squares(residuals, start, loss="soft_l1", f_scale=0.3, bounds=limits).x
    rates = dict(zip(gpus.tolist(), np.exp(x[6:]).tolist(), strict=True))
    return np.exp(x[:4]), rates, dict(zip(_SOURCES[1:], np.exp(x[4:6]).tolist(), strict=True))


def held(
    timed: list[Case], precision: str = "fp32"
) -> dict[tuple[str, str, str], tuple[int, float, float, float, float]]:
    """{(class, GPU, source): number, p10, median and p90 of predicted / timed, Spearman}."""
    ratio = predicted(timed, precision) / np.array([case.seconds for case in timed])
    seconds = np.array([case.seconds for case in timed])
    keys = [(case.kind, case.gpu, case.source) for case in timed]
    found = {}
    for key in sorted(set(keys)):
        at = np.array([each == key for each in keys])
        rank = float(spearmanr(ratio[at] * seconds[at], seconds[at])[0])
        found[key] = (int(at.sum()), *np.quantile(ratio[at], [0.1, 0.5, 0.9]).tolist(), rank)
    return found


def main() -> None:
    timed = cases()
    for kind in dict.fromkeys(case.kind for case in timed):
        own = [case for case in timed if case.kind == kind]
        if len(own) >= 8:
            sizes, rates, factors = fit(own)
            print(kind, sizes.round(2)[:3].tolist(), f"{sizes[3] * 1e6:.0f} us", rates, factors)
    rows = [*held(timed).items()]
    for precision in ("fp32", "tf32"):  # rates of the H100 by hand: until these medians are 1
        found = held(h200_cases(precision), precision)
        rows += [((kind, gpu, precision), each) for (kind, gpu, _), each in found.items()]
    for (kind, gpu, source), (count, *quantiles, rank) in rows:
        shown = " ".join(f"{each:.2f}" for each in quantiles)
        print(f"{kind:28} {gpu:5} {source:10} n={count:4} {shown} Spearman {rank:.3f}")


if __name__ == "__main__":
    main()
