"""What `tfplace fidelity` came to, as JSON and for a person."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from graphs.counted import counted
from graphs.protos import Json
from tfplace.choosing.run_results import Round
from tfplace.fidelity.error_sources import Amount
from tfplace.fidelity.study import Fidelity
from tfplace.report.report import plain
from tfplace.report.text import print_facts, table
from tfplace.report.text_calibration import figures_text
from tfplace.report.text_timings import taught
from tfplace.units_text import seconds_text, share_text

MAX_OP_TYPES = 8
MUCH_BACKGROUND = 0.05


def fidelity_to_json(fidelity: Fidelity) -> dict[str, Json]:
    """The result object."""
    fields = plain(fidelity)
    return {
        **fields.pop("agreement"),
        **fields,
        "num_placements": len(fidelity.pairs),
        "pairs": [
            {**plain(pair), "relative_error": plain(pair.relative_error)} for pair in fidelity.pairs
        ],
        "traced": [
            {key: value for key, value in step.items() if key != "op_seconds"}
            for step in fields["traced"]
        ],
    }


def print_fidelity(fidelity: Fidelity, out: Console) -> None:
    """Prints pairs, where errors come from, and last how well it all agrees."""
    cluster = f"{fidelity.cluster} ({fidelity.communication} channels)"
    machine = figures_text(fidelity.figures)
    if fidelity.corrected:
        machine += ", corrected by a first round of real runs"
    facts = ("model", fidelity.model), ("cluster", cluster), ("machine", machine)
    print_facts(facts, out)
    taught_by = taught(Round((), fidelity.corrected))
    print_facts((("taught", sentence) for sentence in taught_by), out)
    out.print(_pairs(fidelity))
    failed = fidelity.failed.items()
    print_facts((("failed", f"{name}: {why}") for name, why in failed), out)
    if fidelity.traced:
        out.print(_sources(fidelity))
        out.print(_op_types(fidelity))
    print_facts(_conclusion(fidelity), out)


def _conclusion(fidelity: Fidelity) -> Iterator[tuple[str, str]]:
    if (share := fidelity.background_share) is not None and share > MUCH_BACKGROUND:
        yield "noise", f"others used {share_text(share)} of this machine meanwhile"
    for label, best, words in (
        ("speed-up", fidelity.speedup, "best prediction over best device"),
        ("kept", fidelity.kept_speedup, "fastest optimised one, as optimize keeps it"),
    ):
        if best is not None:
            ratios = f"{best.predicted:.3f}x predicted, {best.measured:.3f}x measured"
            yield label, f"{ratios}: {words}"
    yield "agreement", f"{counted(len(fidelity.pairs), 'placement')}: {agreement_text(fidelity)}"


def agreement_text(fidelity: Fidelity) -> str:
    """ "Spearman 0.987, |error| median 3.2%, p90 8.1%"."""
    figures = fidelity.agreement
    rank = "-" if figures.spearman is None else f"{figures.spearman:.3f}"
    if figures.reliability is not None:
        rank += f" (reliability of the measured ranks {figures.reliability:.3f})"
    return (
        f"Spearman {rank}, |error| median {figures.median_abs_relative_error:.1%}, "
        f"p90 {figures.p90_abs_relative_error:.1%}"
    )


def _pairs(fidelity: Fidelity) -> Table:
    """The fastest first."""
    columns = ("placement", "predicted", "measured", "error", "p10-p90", "moves")
    pairs = table(columns, gap=1, name_width=34)
    for pair in sorted(fidelity.pairs, key=lambda pair: pair.measured_seconds):
        pairs.add_row(
            pair.name,
            seconds_text(pair.predicted_seconds),
            seconds_text(pair.measured_seconds),
            f"{pair.relative_error:+.1%}",
            f"{(pair.p90 - pair.p10) / pair.measured_seconds:.1%}",
            f"{pair.transfers:,}",
        )
    return pairs


def _sources(fidelity: Fidelity) -> Table:
    """Predicted / traced of the placements that were taken apart."""
    sources = table(("taken apart", "ops", "between ops", "moving"), gap=1, name_width=24)
    for step in fidelity.traced:
        sources.add_row(step.name, *map(_amount, (step.compute, step.dispatch, step.transfer)))
    return sources


def _amount(amount: Amount) -> str:
    return f"{seconds_text(amount.predicted_seconds)} / {seconds_text(amount.traced_seconds)}"


def _op_types(fidelity: Fidelity) -> Table:
    columns = ("op type", "ops", "predicted", "traced", "error")
    types = table(columns, gap=1, name_width=34)
    for row in fidelity.by_op_type[:MAX_OP_TYPES]:
        error = row.predicted_seconds - row.traced_seconds
        types.add_row(
            row.op_type,
            f"{row.num_ops:,}",
            seconds_text(row.predicted_seconds),
            seconds_text(row.traced_seconds),
            ("-" if error < 0 else "+") + seconds_text(abs(error)),
        )
    return types
