"""The whole page, from verdict to the command that makes it again."""

import importlib.resources

from graphs.counted import counted
from graphs.protos import JsonObject
from tfplace.choosing.baselines import Baseline
from tfplace.proving.run_estimate import split_proof_sentence
from tfplace.report.explaining.explained import (
    CHOSEN,
    NO_KERNEL,
    PINNED,
    TIED,
    Explained,
    heaviest_ops,
    heaviest_types,
    largest_transfers,
    queued_seconds,
    tensor_name,
)
from tfplace.report.html.curve import best_so_far, memory_charts
from tfplace.report.html.elements import (
    colours,
    facts,
    name,
    paragraph,
    section,
    swatch,
    table,
    text,
)
from tfplace.report.html.timeline_data import timeline
from tfplace.report.html.waiting_bars import step_bars, waiting_bars
from tfplace.report.report import PROVEN_GAP, Report, gap_text
from tfplace.report.split_facts import split_sentences
from tfplace.report.text_report import run_sentence
from tfplace.units_text import bytes_text, cost_sentence, seconds_text, share_text

# Nothing may be fetched: styles and scripts are those in the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
VERDICTS = {
    "placed": "Placed",
    "kept_single": "One device is best",
    "kept_given": "Kept as it came",
}


def html_report(report: Report, explained: Explained) -> str:
    """The page."""
    title = f"{report.model['path']} on {report.cluster['name']}"
    parts = [
        _head(report),
        "<main>",
        step_bars(report),
        split_section(report),
        waiting_bars(explained),
        timeline(explained),
        memory_charts(explained),
        _heaviest(explained),
        _transfers(explained),
        _on_cpu(explained),
        _search(report),
        _sources(report),
        _command(report),
        "</main>",
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{text(title)}</title><style>{_asset('page.css')}</style></head><body>\n"
        + "\n".join(parts)
        + f"\n<footer>tfplace {text(report.tfplace_version)}</footer>"
        + f"<script>{_asset('page.js')}</script></body></html>\n"
    )


def _asset(file: str) -> str:
    return importlib.resources.files(__package__).joinpath(file).read_text(encoding="utf-8")


def _head(report: Report) -> str:
    tiles = "".join(
        f"<li><b>{text(value)}</b><span>{text(what)}</span></li>" for value, what in _tiles(report)
    )
    return (
        f"<header><p class='title'>{text(report.model['path'])} <span>on</span> "
        f"{text(report.cluster['name'])}</p>"
        f"<h1 class='{text(report.verdict)}'><em>{text(VERDICTS[report.verdict])}</em> "
        f"{text(report.verdict_sentence)}</h1><ul class='tiles'>{tiles}</ul></header>"
    )


def _tiles(report: Report) -> list[tuple[str, str]]:
    """The figures that one looks for first."""
    best, single = report.best.step_seconds, report.baselines.get("single")
    tiles = [(seconds_text(best), "a step, predicted")]
    if single and single.step_seconds and report.verdict != "kept_single":
        kind = _kind_of_single(single)
        tiles.append((f"{single.step_seconds / best:.2f}x", f"as fast as one {kind}, predicted"))
    measured = report.measured
    if measured is not None and measured.baseline and not measured.is_with_itself:
        tiles.append((f"{measured.speedup:.2f}x", f"as fast as {measured.baseline}, measured"))
    gap = report.gap if report.any_split is None else report.any_split["gap"]
    if gap is not None and report.bound_sentence:
        tiles.append(
            ("optimal", "proven, as the simulator counts")
            if gap <= PROVEN_GAP
            else (f"+{gap_text(gap)}", "at most above the best possible")
        )
    moved = bytes_text(report.best.transfer_bytes)
    tiles.append((moved, f"moved a step, in {counted(report.best.transfers, 'transfer')}"))
    verified = report.verified
    if verified.outputs_equal:
        tiles.append(
            ("equal", f"{counted(len(verified.compared), 'value')} of given and placed model")
        )
    elif verified.structure and not verified.fails:
        tiles.append(("proven", "by structure: given and placed model differ in devices only"))
    else:
        tiles.append(("not compared", "given and placed model"))
    return tiles


def _kind_of_single(single: Baseline) -> str:
    """Names a CPU beside GPUs: what is that much faster than the CPU says little of the GPUs."""
    names, used = single.peak_bytes, [name for name, size in single.peak_bytes.items() if size]
    is_on_cpu = bool(used) and all(":CPU:" in name for name in used)
    return "CPU" if is_on_cpu and any(":GPU:" in name for name in names) else "device"


def _search(report: Report) -> str:
    search = report.search
    sentence = (
        f"{report.algorithm} tried {counted(search['num_trials'], 'placement')} in "
        f"{search['seconds']:.1f} s ({search['trials_per_second']:,.0f} a second), "
        f"{search['num_infeasible']:,} of them infeasible."
    )
    return section(
        "search",
        "The search: best so far",
        f"<p>{text(sentence)}</p>",
        best_so_far(search, report.lower_bound_seconds),
        *(f"<p class='note'>{text(note)}</p>" for note in search["notes"]),
    )


def _sources(report: Report) -> str:
    model, verified, cluster = report.model, report.verified, report.cluster
    proven = "fails, the same" if verified.fails else "proven"
    rows = [
        ("costs", text(cost_sentence(report.costs))),
        *(("", text(note)) for note in report.costs["notes"]),
        ("run", text(model["step_origin"])),
        ("guessed", text("; ".join(model["guessed"]) or "nothing")),
        ("model", f"{name(model['path'])} ({text(model['kind'])}), {model['num_ops']:,} ops in "
                  f"{model['num_groups']:,} groups that can be placed apart"),
        ("cluster", f"{text(cluster['name'])}: {counted(len(cluster['devices']), 'device')}; "
                    f"transfers share channels by the rule {text(cluster['communication'])}"),
        *((f"{proven} by structure", text(what)) for what in verified.structure_compared),
        ("verified", text(run_sentence(verified))),
        *(("not compared", text(what)) for what in verified.not_compared[:8]),
        *(("one unit", text(unit)) for unit in model["units"][:8]),
        *(("opened", text(conditional)) for conditional in model.get("opened", ())[:8]),
    ]  # fmt: skip
    covered = report.costs["covered_ops"]
    bar = (
        f"<div class='track' role='img' aria-label='{share_text(covered)} of the ops priced'>"
        f"<div style='width:{100 * covered:.1f}%'></div></div>"
    )
    return section("sources", "Where the numbers come from", bar, facts(rows))


def _command(report: Report) -> str:
    rows = [
        ("seed", f"{report.seed}; algorithm {text(report.algorithm)}, evaluator "
                 f"{text(report.evaluator)}"),
        ("load it", name(report.loading_call)),
    ]  # fmt: skip
    command = text(report.command) or "(called from Python)"
    return section(
        "again",
        "Make it again",
        f"<pre id='command' tabindex='0'>{command}</pre>"
        "<button type='button' id='copy'>copy</button>",
        facts(rows),
    )


def split_section(report: Report) -> str:
    """The section of the page; empty for a step that is whole."""
    if report.split is None:
        return ""
    rows = [(name, text(what)) for name, what in split_sentences(report.split)]
    if report.verified.split is not None:
        rows.append(("proven", text(split_proof_sentence(report.verified.split))))
    kind = report.parallelism
    return section(
        "split",
        "How the step is split",
        paragraph(kind["sentence"]) if kind else "",
        _shares(kind) if kind else "",
        facts(rows),
    )


def _shares(kind: JsonObject) -> str:
    """What each device has of each shard's work, as shares of all work."""
    head = ["of all work", *(f"shard {m}" for m in range(len(kind["shares"][0]["shards"])))]
    rows = [
        [text(row["device"]), *map(_cell, (*row["shards"], row["whole"]))]
        for row in kind["shares"]
        if row["whole"] or any(row["shards"])
    ]
    return table((*head, "whole"), rows)


def _cell(share: float) -> str:
    return share_text(share) if share >= 0.005 else "·" if share > 0 else ""


MAX_ROWS = 12
REASONS = {
    NO_KERNEL: "no GPU has a kernel for them, with these dtypes",
    PINNED: "pinned there by --pin or --keep_devices",
    TIED: "they share a colocation group with ops that must be there",
    CHOSEN: "chosen: a GPU could run them, the placement found nothing gained by it",
}


def _heaviest(explained: Explained) -> str:
    schedule, graph = explained.schedule, explained.problem.graph
    takes = schedule.op_end - schedule.op_start
    ops = [
        (name(graph.op_names[op]), name(graph.op_types[op]),
         _device(explained, schedule.device_of_op[op]), seconds_text(takes[op]),
         f"{100 * takes[op] / (schedule.makespan or 1.0):.1f} %")
        for op in heaviest_ops(schedule, MAX_ROWS)
    ]  # fmt: skip
    types = [
        (name(kind), f"{num_ops:,}", seconds_text(seconds))
        for kind, num_ops, seconds in heaviest_types(explained.problem, schedule, MAX_ROWS)
    ]
    return section(
        "heavy",
        "Heaviest ops",
        table(("op", "type", "device", "takes", "of the step"), ops, numbers_from=3),
        "<details><summary>By type, all devices together</summary>",
        table(("type", "ops", "take"), types),
        "</details>",
    )


def _transfers(explained: Explained) -> str:
    moved = explained.schedule.transfers
    queued = queued_seconds(explained.problem, explained.schedule)
    rows = [
        (name(tensor_name(explained.problem, moved.tensor[i])), _device(explained, moved.source[i]),
         _device(explained, moved.target[i]), bytes_text(moved.bytes[i]),
         seconds_text(moved.arrival[i] - moved.start[i]), seconds_text(queued[i]))
        for i in largest_transfers(explained.schedule, MAX_ROWS)
    ]  # fmt: skip
    head = ("tensor", "from", "to", "size", "takes", "queued")
    return section(
        "transfers",
        "Largest transfers",
        table(head, rows, numbers_from=3) if rows else "<p>Nothing is moved between devices.</p>",
    )


def _on_cpu(explained: Explained) -> str:
    if "GPU" not in explained.problem.device_types:
        return ""
    rows = [
        (text(REASONS[ops.reason]), f"{ops.num_ops:,}",
         ", ".join(f"{name(kind)} {count:,}" for kind, count in ops.types),
         seconds_text(ops.seconds), seconds_text(ops.gpu_seconds), name(ops.example))
        for ops in explained.on_cpu
    ]  # fmt: skip
    head = ("why", "ops", "types", "take", "on a GPU", "the longest")
    return section(
        "cpu",
        "Why ops sit on the CPU",
        f"<div class='words'>{table(head, rows)}</div>" if rows else "<p>No op does.</p>",
    )


def _device(explained: Explained, device: int) -> str:
    return swatch(colours(explained.problem)[device], explained.names[device])
