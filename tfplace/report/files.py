"""Writes the placed model, and the files beside it in assets.extra/tfplace/ (contract, 3)."""

import collections
import dataclasses
import json
import pprint
from collections.abc import Mapping
from pathlib import Path

from graphs.counted import counted
from graphs.flat_graph import Origin
from graphs.host.freed_memory import uncollected
from graphs.op_graph import IntArray
from graphs.problem_file import write_problem
from rewrite.emit import EXTRA_DIRECTORY, emit
from rewrite.emit_forms import PYTHON, tags_of, write_forms
from rewrite.model_builder import BuiltModel
from tfplace.choosing.memory.within_memory import before_plan
from tfplace.preparing.options import OptimizeOptions
from tfplace.preparing.prepare import PreparedModel
from tfplace.report.explaining.explained import Explained, explain
from tfplace.report.html.page import html_report
from tfplace.report.of_run import FinishedRun, report_of
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
    options: OptimizeOptions, run: FinishedRun, placed: Simulated, made: Path
) -> Report:
    """Writes report and pages beside the placed model, and what else was asked for."""
    chosen = run.decided.choice.candidate.device_of_op
    explained = explain(placed, before_plan(run.decided.prepared, chosen))
    report = report_of(options, run, explained)
    (made / EXTRA_DIRECTORY).mkdir(parents=True, exist_ok=True)
    for name, content in report_files(report, explained).items():
        (made / EXTRA_DIRECTORY / name).write_bytes(content)
    write_forms(made, tags_of(run.decided.prepared.source), options.emit)
    if options.dump_problem is not None:
        write_problem(options.dump_problem, placed.problem, placed.device_of_op)
    return report


def placement_files(
    prepared: PreparedModel, device_of_op: IntArray, placed: Simulated, with_python: bool = False
) -> dict[str, bytes]:
    """placement.json and timeline.json of a placement of the prepared model's problem.

    Args:
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


def _json(value: object, indent: int | None = 1) -> bytes:
    return json.dumps(value, indent=indent, allow_nan=False).encode() + b"\n"


# A placement as Python, to be pasted into the code that builds the graph.
#
# Names of ops are paths of scopes. The fewest entries of a table {scope: device} are found that
# give each op its device when the longest scope that has an entry counts (as routing tables are
# made short: Draves et al., "Constructing optimal IP routing tables", 1999, for more than two
# branches).


def placement_script(device_of_op: Mapping[str, str], model: str, cluster: str) -> str:
    """A module with a table {scope: device}, and a function that looks an op up in it.

    Args:
      device_of_op: {op: device}, a placement.json; not empty.
    """
    table = "".join(
        f"    {key!r}: {device!r},  # {counted(num_ops, 'op')}\n"
        for key, (device, num_ops) in device_of_scope(device_of_op).items()
    )
    heading = [pprint.saferepr(text)[1:-1].replace('"', "'") for text in (model, cluster)]
    script = Path(__file__).with_name("placement_script.txt").read_text("utf-8")
    return script.format(
        num_ops=counted(len(device_of_op), "op"), model=heading[0], cluster=heading[1], table=table
    )


def device_of_scope(device_of_op: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """{scope or op: (device, how many ops have it from this entry)}, as few as possible.

    A scope ends with "/"; "" is all that there is.

    Args:
      device_of_op: {op: device}; not empty.
    """
    root = _Scope("")
    for name, device in sorted(device_of_op.items()):
        root.add(name, device)
    root.choose()
    entries: dict[str, tuple[str, int]] = {}
    root.write(entries, "", "")
    return entries


@dataclasses.dataclass
class _Scope:
    """A scope, or an op.

    Attributes:
      key: its entry's.
      inside: by the next part of the name; empty for an op.
      devices: those with the fewest entries below, if this one had it; in falling order of ops.
    """

    key: str
    inside: "dict[str, _Scope]" = dataclasses.field(default_factory=dict)
    devices: list[str] = dataclasses.field(default_factory=list)

    def add(self, name: str, device: str) -> None:
        scope = self
        *parts, _ = name.split("/")
        for part in parts:
            scope = scope.inside.setdefault(f"{part}/", _Scope(f"{scope.key}{part}/"))
        scope.inside[name] = _Scope(name, devices=[device])

    def choose(self) -> collections.Counter[str]:
        """Finds `devices` here and below; returns how many ops each device has."""
        if not self.inside:
            return collections.Counter(self.devices)
        ops: collections.Counter[str] = collections.Counter()
        for scope in self.inside.values():
            ops += scope.choose()
        votes = collections.Counter(d for scope in self.inside.values() for d in scope.devices)
        most = max(votes.values())
        wanted = [device for device, count in votes.items() if count == most]
        self.devices = sorted(wanted, key=lambda device: (-ops[device], device))
        return ops

    def write(self, entries: dict[str, tuple[str, int]], above: str, device: str) -> None:
        """Adds an entry where what is above has another device, and counts the ops."""
        if device not in self.devices:
            above, device = self.key, self.devices[0]
            entries[above] = (device, 0)
        if not self.inside:
            entries[above] = (device, entries[above][1] + 1)
        for scope in self.inside.values():
            scope.write(entries, above, device)
