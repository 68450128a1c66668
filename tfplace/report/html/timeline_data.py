"""The schedule as the page's script draws it: rows of devices and links, columns of numbers.

Times are whole ticks, a ten-millionth of the step, so that they stay short in the file. Names are
split at their last "/": scopes repeat. Above MAX_OPS and MAX_TRANSFERS the shortest ones lose their
names and become runs ("37 short ops"), so that the file stays below a few MB whatever the graph.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from graphs.op_graph import FloatArray, IntArray
from graphs.protos import Json
from tfplace.grouping.copies import shard_of_op
from tfplace.report.explaining.explained import Explained, tensor_name
from tfplace.report.explaining.waiting import OP, TRANSFER
from tfplace.report.html.elements import NUM_COLOURS, colours, data, section, swatch
from tfplace.simulation.timeline import slot_of_op

NUM_TICKS = 10_000_000
MAX_OPS, MAX_TRANSFERS, MAX_WAITS = 16_000, 10_000, 10_000
RUN_TICKS = NUM_TICKS // 2_000
"""Short ops join a run where less than this lies between them."""
MAX_NAME = 160
"""Characters of a name; a longer one loses its middle."""
MAX_SLOTS = 8
"""Rows of a device; ops in further slots are drawn in the last one."""
BUTTONS = (
    ("in", "+", "zoom in (+)"),
    ("out", "−", "zoom out (−)"),
    ("left", "←", "earlier (left arrow)"),
    ("right", "→", "later (right arrow)"),
    ("all", "all", "the whole step (0)"),
    ("previous", "previous", "previous in this row (p)"),
    ("next", "next", "next in this row (n)"),
    ("cause", "what it waited for", "go to what the chosen op or transfer waited for (w)"),
)
OF_SHARDS = ("colour", "colours", "colour by shard or by device (c)")


def timeline_data(explained: Explained) -> dict[str, Json]:
    """What the script gets; its `rows` are those of devices, slot by slot, then those of links."""
    schedule, graph = explained.schedule, explained.problem.graph
    moved, scale = schedule.transfers, NUM_TICKS / (schedule.makespan or 1.0)
    slots = np.minimum(slot_of_op(schedule, explained.problem.num_devices), MAX_SLOTS - 1)
    row_of_op, rows = _device_rows(explained, slots.astype(np.int32))
    row_of_transfer, links = _link_rows(explained, len(rows))
    runs = np.flatnonzero(schedule.op_end > schedule.op_start)
    ops, short = _longest(runs, schedule.op_end - schedule.op_start, MAX_OPS)
    sent, quick = _longest(np.arange(len(moved.tensor)), moved.arrival - moved.start, MAX_TRANSFERS)
    places = _Places(
        {op: place for place, op in enumerate(ops.tolist())},
        {transfer: place for place, transfer in enumerate(sent.tolist())},
    )
    types, type_of_op = np.unique(
        [str(graph.op_types[op]) for op in ops.tolist()], return_inverse=True
    )
    scopes: dict[str, int] = {}
    shard = shard_of_op(explained.problem)
    num_shards = int(shard.max(initial=-1)) + 1
    op_columns = {
        "row": row_of_op[ops].tolist(),
        "start": _ticks(schedule.op_start[ops], scale),
        "end": _ticks(schedule.op_end[ops], scale),
        "name": [_scope_and_name(str(graph.op_names[op]), scopes) for op in ops.tolist()],
        "type": type_of_op.tolist(),
        "cause": [_cause(explained, op, places) for op in ops.tolist()],
        **({"shard": shard[ops].tolist()} if num_shards else {}),
    }
    return {
        "shards": num_shards,
        "seconds": schedule.makespan,
        "ticks": NUM_TICKS,
        "devices": [
            {"name": name, "colour": colour}
            for name, colour in zip(explained.names, colours(explained.problem), strict=True)
        ],
        "rows": [*rows, *links],
        "ops": op_columns,
        "types": [str(kind) for kind in types],
        "transfers": _transfer_columns(explained, sent, row_of_transfer, scale, places, scopes),
        "waits": _waits(explained, rows, scale, places),
        "runs": [
            *_runs(short, row_of_op, (schedule.op_start, schedule.op_end), scale),
            *_runs(quick, row_of_transfer, (moved.start, moved.arrival), scale),
        ],
        "scopes": list(scopes),
    }


def _transfer_columns(
    explained: Explained,
    sent: IntArray,
    row_of_transfer: IntArray,
    scale: float,
    places: "_Places",
    scopes: dict[str, int],
) -> dict[str, Json]:
    schedule, problem = explained.schedule, explained.problem
    moved = schedule.transfers
    maker = problem.graph.tensor_producer[moved.tensor[sent]]
    return {
        "row": row_of_transfer[sent].tolist(),
        "start": _ticks(moved.start[sent], scale),
        "end": _ticks(moved.arrival[sent], scale),
        "made": _ticks(schedule.op_end[maker], scale),
        "name": [
            _scope_and_name(tensor_name(problem, tensor), scopes)
            for tensor in moved.tensor[sent].tolist()
        ],
        "bytes": moved.bytes[sent].tolist(),
        "cause": [places.of_op.get(op, -1) for op in maker.tolist()],
    }


@dataclasses.dataclass(frozen=True)
class _Places:
    """Where ops and transfers stand in the page's columns; what became part of a run is missing."""

    of_op: Mapping[int, int]  # {op: its place}
    of_transfer: Mapping[int, int]  # {transfer: its place}

    def cause(self, kind: str, item: int) -> int:
        """How the page names a cause: p + 1 for op p, -(p + 1) for transfer p, 0 for neither."""
        if kind == TRANSFER:
            return -(self.of_transfer.get(item, -1) + 1)
        return self.of_op.get(item, -1) + 1


def _scope_and_name(name: str, scopes: dict[str, int]) -> list[Json]:
    """[number of the scope, last part] of a name; a scope that is new gets the next number."""
    if len(name) > MAX_NAME:
        name = f"{name[: MAX_NAME // 2]}…{name[-MAX_NAME // 2 :]}"
    scope, slash, last = name.rpartition("/")
    return [scopes.setdefault(scope + slash, len(scopes)), last]


def _ticks(seconds: FloatArray, scale: float) -> list[int]:
    return np.rint(seconds * scale).astype(np.int64).tolist()


def _device_rows(explained: Explained, slots: IntArray) -> tuple[IntArray, list[dict[str, Json]]]:
    """Row of each op i4[N], and the rows: every device has one at least, in which it waits."""
    device = explained.schedule.device_of_op
    does_run = explained.schedule.op_end > explained.schedule.op_start
    rows: list[dict[str, Json]] = []
    first = []
    for number, name in enumerate(explained.names):
        here = slots[(device == number) & does_run]
        first.append(len(rows))
        for slot in range(int(here.max()) + 1 if len(here) else 1):
            rows.append({"label": name if not slot else "", "kind": "device", "device": number})
    return (np.array(first, dtype=np.int32)[device] + slots).astype(np.int32), rows


def _link_rows(explained: Explained, before: int) -> tuple[IntArray, list[dict[str, Json]]]:
    """Row of each transfer, and a row for each ordered pair of devices that moves anything."""
    moved, size = explained.schedule.transfers, explained.problem.num_devices
    keys, number = np.unique(moved.source * size + moved.target, return_inverse=True)
    rows = [
        {
            "label": f"{explained.names[key // size]} → {explained.names[key % size]}",
            "kind": "link",
            "device": key // size,
        }
        for key in keys.tolist()
    ]
    return (number.reshape(-1) + before).astype(np.int32), rows


def _longest(items: np.ndarray, seconds: FloatArray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` items that last longest, and the others, both in their given order."""
    if len(items) <= count:
        return items, items[:0]
    is_long = np.zeros(len(items), dtype=bool)
    is_long[np.argsort(-seconds[items], kind="stable")[:count]] = True
    return items[is_long], items[~is_long]


def _cause(explained: Explained, op: int, places: _Places) -> int:
    """What the op waited for last, as `_Places.cause` says it."""
    causes, schedule = explained.causes, explained.schedule
    while True:
        if schedule.op_start[op] > causes.ready[op] or causes.producer[op] < 0:
            return 0  # its device was busy with others, or it waited for nothing
        if causes.transfer[op] >= 0:
            return places.cause(TRANSFER, int(causes.transfer[op]))
        op = int(causes.producer[op])
        if schedule.op_end[op] > schedule.op_start[op]:
            return places.cause(OP, op)


def _waits(
    explained: Explained, rows: Sequence[dict[str, Json]], scale: float, places: _Places
) -> list[list[Json]]:
    """[row, start, end, kind, device, cause] of idle times, the longest first.

    Neighbours that wait for the same device are joined; their cause is what is waited for longest.
    """
    row_of_device = {row["device"]: number for number, row in reversed(list(enumerate(rows)))}
    waits: list[list[Json]] = []
    for device, time in enumerate(explained.times):
        for gap in time.gaps:
            for (kind, other), spans in itertools.groupby(gap.spans, lambda s: (s.kind, s.device)):
                parts = list(spans)
                longest = max(parts, key=lambda span: span.end - span.start)
                start, end = round(parts[0].start * scale), round(parts[-1].end * scale)
                cause = places.cause(kind, longest.item)
                waits.append([row_of_device[device], start, end, kind, other, cause])
    waits.sort(key=lambda wait: wait[1] - wait[2])
    return waits[:MAX_WAITS]


def _runs(
    items: np.ndarray, row_of_item: IntArray, seconds: tuple[FloatArray, FloatArray], scale: float
) -> list[list[int]]:
    """[row, start, end, items] of items that are near each other in their row."""
    starts, ends = (np.rint(column * scale).astype(np.int64) for column in seconds)
    runs: list[list[int]] = []
    for item in items[np.lexsort((starts[items], row_of_item[items]))].tolist():
        row, start, end = int(row_of_item[item]), int(starts[item]), int(ends[item])
        if runs and runs[-1][0] == row and start - runs[-1][2] < RUN_TICKS:
            runs[-1][2] = max(runs[-1][2], end)
            runs[-1][3] += 1
        else:
            runs.append([row, start, end, 1])
    return runs


def timeline(explained: Explained) -> str:
    """The section of the page; timeline.json holds the same schedule for other viewers."""
    content = timeline_data(explained)
    num_shards = content["shards"]
    buttons = "".join(
        f"<button type='button' data-do='{action}' title='{hint}'>{label}</button>"
        for action, label, hint in ((*BUTTONS, OF_SHARDS) if num_shards else BUTTONS)
    )
    return section(
        "schedule",
        "The predicted schedule",
        "<p>Devices first, then the links between them; idle times are tinted (an op elsewhere) or "
        "striped (a transfer)"
        f"{'' if num_shards else ' in the colour of the device that is waited for'}. Drag, "
        "or Ctrl + wheel; with the keyboard: Tab to the picture, arrows, <kbd>+</kbd> "
        "<kbd>−</kbd> <kbd>0</kbd>, <kbd>n</kbd> <kbd>p</kbd> along a row, <kbd>w</kbd> to what it "
        "waited for, <kbd>Enter</kbd> to look closely.</p>",
        _shard_legend(num_shards),
        f"<div class='tools'>{buttons}</div>",
        "<canvas id='timeline' tabindex='0' role='application' aria-label='the predicted schedule; "
        "up and down choose a row, n and p what runs in it' aria-describedby='timeline-told'>"
        "</canvas>",
        "<p id='timeline-told' class='told' role='status'>Choose anything in the picture.</p>",
        "<noscript><p>The picture needs JavaScript; timeline.json, beside this page, opens in "
        "Perfetto.</p></noscript>",
        data("timeline-data", content),
    )


def _shard_legend(num_shards: int) -> str:
    """Which colour which shard has; empty for a step that is whole."""
    if not num_shards:
        return ""
    shown = [(1 + shard % (NUM_COLOURS - 1), f"shard {shard}") for shard in range(num_shards)]
    items = "".join(f"<li>{swatch(*each)}</li>" for each in [*shown, (0, "whole")])
    return (
        "<p>Colours are the shards': ops of one colour compute one part of the batch; <kbd>c</kbd> "
        f"shows devices' colours instead.</p><ul class='legend'>{items}</ul>"
    )
