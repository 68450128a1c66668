"""What was measured of a machine, for a person and as JSON: `calibrate`, and for reports."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from graphs.cluster import Cluster
from graphs.clusters.cluster_file import cluster_to_json
from graphs.protos import Json, JsonObject
from tfplace.report.report import plain
from tfplace.report.text import print_facts, table
from tfplace.units_text import seconds_text, share_text

if TYPE_CHECKING:  # calibrating needs TensorFlow, other commands' reports don't
    from tfplace.measurement.calibration.calibrating import Calibration
    from tfplace.measurement.calibration.line_fit import LineFit


def calibration_to_json(calibration: "Calibration", output: str) -> dict[str, Json]:
    """The result object: the cluster file's content, and how good its figures are."""
    return {
        "output": output,
        "cluster": cluster_to_json(calibration.cluster),
        "step": plain(calibration.steps),
        "ops": plain(calibration.ops),
        "links": [
            {
                "from": ends[0],
                "to": ends[1],
                **plain(link),
                "refused": calibration.refused.get(ends, ""),
                "sender": plain(calibration.senders[ends]),
                "receiver": plain(calibration.receivers[ends]),
            }
            for ends, link in calibration.links.items()
        ],
        "contention": plain(calibration.contention),
        "communication": plain(calibration.rule),
        "background_share": calibration.background_share,
        "warnings": list(calibration.warnings),
        "seconds": calibration.seconds,
    }


def print_calibration(calibration: "Calibration", output: str, out: Console) -> None:
    """Prints devices, links, how well lines fit, and warnings."""
    cluster = calibration.cluster
    dispatch = seconds_text(cluster.step_overhead_seconds)
    fetch = seconds_text(cluster.fetch_seconds)
    rows = [
        ("cluster", f"{cluster.origin}, measured in {calibration.seconds:.0f} s"),
        ("step", f"{dispatch} of dispatch, and {fetch} for each fetched tensor"),
    ]
    print_facts(rows, out)
    out.print(_devices(calibration))
    print_facts(_memory(calibration), out)
    if calibration.links:
        out.print(_links(calibration))
        out.print(_transfer_work(calibration))
        errors = calibration.rule.error_of_rule.items()
        misses = ", ".join(f"{name} {share_text(error)}" for name, error in errors)
        rule = f"{calibration.rule.rule}; transfers at once miss each rule by: {misses}"
        print_facts([("channels", rule)], out)
    print_facts((("warning", sentence) for sentence in calibration.warnings), out)
    # Not wrapped: the path can be copied, and so can the command.
    out.print(f"written   {output}", soft_wrap=True)
    out.print(f"use it    tfplace optimize MODEL --cluster={output}", soft_wrap=True)


def _memory(calibration: "Calibration") -> Iterator[tuple[str, str]]:
    """How fast devices stream, and how much slower they get beside each other."""
    fastest = max(ops.stream_bytes_per_second for ops in calibration.ops.values())
    if fastest:
        yield "memory", f"an op streams {fastest / 1e9:.2g} GB/s on a CPU that works alone"
    for slower in list(calibration.contention.values())[:1]:
        yield (
            "at once",
            f"while all compute, products take {share_text(slower.compute_slowdown)} "
            f"longer, streams {share_text(slower.memory_slowdown)}",
        )


def _devices(calibration: "Calibration") -> Table:
    devices = table(("device", "", "an op", "in a step", "ops at once"))
    for position, device in enumerate(calibration.cluster.devices):
        devices.add_row(
            str(position),
            device.name,
            seconds_text(device.op_seconds),
            seconds_text(device.step_seconds),
            str(device.slots),
        )
    return devices


def _links(calibration: "Calibration") -> Table:
    links = table(("link", "latency", "rate", "fit is off by", "R2", ""))
    for ends, link in calibration.links.items():
        links.add_row(
            _ends_text(calibration, ends),
            seconds_text(link.latency_seconds),
            f"{link.bytes_per_second / 1e9:.3g} GB/s",
            share_text(link.fit.median_relative_residual),
            f"{link.fit.r_squared:.3f}",
            "not used" if ends in calibration.refused else "",
        )
    return links


def _transfer_work(calibration: "Calibration") -> Table:
    """As it is in the cluster file; beside it how far one line misses that link's own figures."""
    rows = table(("a transfer takes", "of its sender", "off by", "of its receiver", "off by"))
    work, names = calibration.cluster.transfer_work, calibration.cluster.device_names
    for ends in calibration.links:
        at = names.index(ends[0]), names.index(ends[1])
        sender = receiver = "-"
        if work is not None:
            sender = _line_text(work.sender_seconds[at], work.sender_seconds_per_byte[at])
            receiver = _line_text(work.receiver_seconds[at], work.receiver_seconds_per_byte[at])
        rows.add_row(
            _ends_text(calibration, ends),
            sender,
            _residual(calibration.senders[ends].fit),
            receiver,
            _residual(calibration.receivers[ends].fit),
        )
    return rows


def _ends_text(calibration: "Calibration", ends: tuple[str, str]) -> str:
    """Positions in the table of devices, which are shorter than names."""
    names = calibration.cluster.device_names
    return " -> ".join(str(names.index(end)) for end in ends)


def _residual(fit: "LineFit | None") -> str:
    return "" if fit is None else share_text(fit.median_relative_residual)


def _line_text(fixed_seconds: float, seconds_per_byte: float) -> str:
    """ "35 us + 0.5 ns/B"; "-" where nothing was seen."""
    if not fixed_seconds and not seconds_per_byte:
        return "-"
    return f"{seconds_text(fixed_seconds)} + {seconds_per_byte * 1e9:.2g} ns/B"


MEASURED, PARTLY, ASSUMED = "measured", "partly measured", "assumed"
FIGURES_TEXT = {
    MEASURED: "devices and links as they were measured",
    PARTLY: "devices as measured; links and what transfers take of their ends as assumed",
    ASSUMED: "devices and links as assumed, nothing of them was measured",
}


def figures_of(cluster: Cluster) -> str:
    """Which of a cluster's figures were measured."""
    if not cluster.origin:
        return ASSUMED
    return PARTLY if cluster.transfer_work is None else MEASURED


def machine_facts(cluster: Cluster, has_forgotten: bool = False) -> JsonObject:
    """`figures`, of these words; `taught` by earlier runs; and whether that was forgotten."""
    return {
        "figures": figures_of(cluster),
        "taught": dict(cluster.taught),
        "forgotten": has_forgotten,
    }


def machine_text(facts: JsonObject) -> str:
    """One line of them."""
    said = FIGURES_TEXT[facts["figures"]]
    if facts["forgotten"]:
        return f"{said}; what earlier runs taught no longer fits and is forgotten"
    if facts["taught"]:
        return f"{said}, corrected by what earlier runs taught"
    return said
