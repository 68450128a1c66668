"""What calibration found, for a person and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from graphs.clusters.cluster_file import cluster_to_json
from tfplace.measurement.calibration.calibrating import Calibration
from tfplace.measurement.calibration.line_fit import LineFit
from tfplace.report.report import plain
from tfplace.units_text import seconds_text, share_text


def calibration_to_json(found: Calibration, output: str) -> dict[str, Any]:
    """The result object: the cluster file's content, and how good its figures are."""
    return {
        "output": output,
        "cluster": cluster_to_json(found.cluster),
        "step": plain(found.steps),
        "ops": plain(found.ops),
        "links": [
            {
                "from": source,
                "to": target,
                **plain(found.links[source, target]),
                "sender": plain(found.senders[source, target]),
                "receiver": plain(found.receivers[source, target]),
            }
            for source, target in found.links
        ],
        "contention": plain(found.contention),
        "communication": plain(found.rule),
        "background_share": found.background_share,
        "warnings": list(found.warnings),
        "seconds": found.seconds,
    }


def print_calibration(found: Calibration, output: str, out: Console) -> None:
    """Prints devices, links, how well lines fit, and warnings."""
    out.print(f"cluster   {found.cluster.origin}, measured in {found.seconds:.0f} s")
    out.print(
        f"step      {seconds_text(found.cluster.step_overhead_seconds)} of dispatch, and "
        f"{seconds_text(found.cluster.fetch_seconds)} for each fetched tensor"
    )
    out.print(_devices(found))
    rates = [ops.stream_bytes_per_second for ops in found.ops.values()]
    if any(rates):
        out.print(f"memory    an op streams {max(rates) / 1e9:.2g} GB/s on a CPU that works alone")
    slower = next(iter(found.contention.values()), None)
    if slower is not None:
        out.print(
            f"at once   while all compute, products take {share_text(slower.compute_slowdown)} "
            f"longer, streams {share_text(slower.memory_slowdown)}"
        )
    if found.links:
        out.print(_links(found))
        out.print(_busy(found))
        rule, errors = found.rule.rule, found.rule.error_of_rule
        misses = ", ".join(f"{name} {share_text(error)}" for name, error in errors.items())
        out.print(f"channels  {rule}; transfers at once miss each rule by: {misses}")
    for warning in found.warnings:
        out.print(f"warning   {warning}")
    out.print(f"written   {output}")
    out.print(f"use it    tfplace optimize MODEL --cluster={output}")


def _devices(found: Calibration) -> Table:
    table = _table(("device", "", "an op", "in a step", "ops at once"))
    for position, device in enumerate(found.cluster.devices):
        table.add_row(
            str(position),
            device.name,
            seconds_text(device.op_seconds),
            seconds_text(device.step_seconds),
            str(device.slots),
        )
    return table


def _links(found: Calibration) -> Table:
    table = _table(("link", "latency", "rate", "fit is off by", "R2"))
    for ends, link in found.links.items():
        table.add_row(
            _ends_text(found, ends),
            seconds_text(link.latency_seconds),
            f"{link.bytes_per_second / 1e9:.3g} GB/s",
            share_text(link.fit.median_relative_residual),
            f"{link.fit.r_squared:.3f}",
        )
    return table


def _busy(found: Calibration) -> Table:
    """As it is in the cluster file; beside it how far one line misses that link's own figures."""
    table = _table(("a transfer takes", "of its sender", "off by", "of its receiver", "off by"))
    work, names = found.cluster.transfer_work, found.cluster.device_names
    for ends in found.links:
        at = names.index(ends[0]), names.index(ends[1])
        texts = ["-", "-"]
        if work is not None:
            texts = [
                _line_text(float(fixed[at]), float(per_byte[at]))
                for fixed, per_byte in (
                    (work.sender_seconds, work.sender_seconds_per_byte),
                    (work.receiver_seconds, work.receiver_seconds_per_byte),
                )
            ]
        fits = found.senders[ends].fit, found.receivers[ends].fit
        cells = [text for pair in zip(texts, map(_residual, fits), strict=True) for text in pair]
        table.add_row(_ends_text(found, ends), *cells)
    return table


def _ends_text(found: Calibration, ends: tuple[str, str]) -> str:
    """Positions in the table of devices, which are shorter than names."""
    names = found.cluster.device_names
    return " -> ".join(str(names.index(end)) for end in ends)


def _residual(fit: LineFit | None) -> str:
    return "" if fit is None else share_text(fit.median_relative_residual)


def _line_text(fixed_seconds: float, seconds_per_byte: float) -> str:
    """ "35 us + 0.5 ns/B"; "-" where nothing was seen."""
    if not fixed_seconds and not seconds_per_byte:
        return "-"
    return f"{seconds_text(fixed_seconds)} + {seconds_per_byte * 1e9:.2g} ns/B"


def _table(columns: tuple[str, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for position, name in enumerate(columns):
        table.add_column(name, justify="left" if position == 0 or not name else "right")
    return table
