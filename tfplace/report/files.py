"""Writes the placed model, and the files beside it in assets.extra/tfplace/ (contract, 3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphs.flat_graph import Origin
from graphs.host.freed_memory import uncollected
from graphs.host.whole_file import write_whole
from graphs.op_graph import IntArray
from graphs.problem_file import write_problem
from rewrite.emit import EXTRA_DIRECTORY, emit
from rewrite.emit_forms import PYTHON, tags_of, write_forms
from rewrite.model_builder import BuiltModel
from tfplace.output_paths import write_files
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.report.explaining.explained import Explained, explain
from tfplace.report.html.page import html_report
from tfplace.report.of_run import FinishedRun, report_of
from tfplace.report.placement_script import placement_script
from tfplace.report.report import Report
from tfplace.simulation.simulated import Simulated
from tfplace.simulation.timeline import chrome_trace


@uncollected()
def write_placed(
    prepared: PreparedModel,
    options: OptimizeOptions,
    chosen: IntArray,
    placed: Simulated,
    made: Path,
    built: BuiltModel | None,
) -> Mapping[Origin, str]:
    """Writes the placed model and what belongs to its placement; returns the devices written."""
    devices = prepared.devices_to_write(chosen, options.problem.keep_devices)
    files = placement_files(prepared, chosen, placed, PYTHON in options.emit)
    emit(prepared.source, devices, made, files, built, prepared.order_edges(chosen))
    return devices


def write_report(
    prepared: PreparedModel,
    options: OptimizeOptions,
    run: FinishedRun,
    placed: Simulated,
    made: Path,
) -> Report:
    """Writes report and pages beside the placed model, and what else was asked for."""
    explained = explain(placed)
    report = report_of(prepared, options, run, explained)
    write_files(made / EXTRA_DIRECTORY, report_files(report, explained))
    write_forms(made, tags_of(prepared.source), options.emit)
    if options.dump_problem is not None:
        write_whole(
            options.dump_problem,
            lambda file: write_problem(file, placed.problem, placed.device_of_op),
        )
    return report


def placement_files(
    prepared: PreparedModel,
    device_of_op: IntArray,
    placed: Simulated,
    with_python: bool = False,
) -> dict[str, bytes]:
    """placement.json and timeline.json of a placement of the prepared model's problem.

    Args:
      prepared: the model.
      device_of_op: i4[N] the placement.
      placed: the same simulated, with its order where it has one.
      with_python: whether there is a placement.py, too.
    """
    trace = chrome_trace(placed.problem, placed.known_schedule())
    devices = node_devices(prepared, device_of_op)
    files = {"placement.json": _lines(devices), "timeline.json": _json(trace, indent=None)}
    if with_python:
        script = placement_script(devices, prepared.source.path, prepared.cluster.name)
        files["placement.py"] = script.encode()
    return files


def report_files(report: Report, explained: Explained) -> dict[str, bytes]:
    """report.json and report.html of the placement that was written."""
    return {
        "report.json": _json(report.to_json()),
        "report.html": html_report(report, explained).encode(),
    }


def node_devices(prepared: PreparedModel, device_of_op: IntArray) -> dict[str, str]:
    """{op path: device} of every op that the model has; a unit stands by its own name.

    Ops that opening the calls added have no place in the model and are left out.
    """
    names = prepared.problem.device_names
    return {
        name: names[device]
        for name, device, own in zip(
            prepared.problem.graph.op_names,
            device_of_op.tolist(),
            prepared.in_model().tolist(),
            strict=True,
        )
        if own
    }


def _lines(value: Mapping[str, str]) -> bytes:
    """What `_json` makes of it, by the encoder in C, which can't indent."""
    if not value:
        return _json(value)
    return b"{\n " + json.dumps(value, separators=(",\n ", ": ")).encode()[1:-1] + b"\n}\n"


def _json(value: Any, indent: int | None = 1) -> bytes:
    return json.dumps(value, indent=indent, allow_nan=False).encode() + b"\n"
