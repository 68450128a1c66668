"""Tests of tfplace.runs.bench.table and tfplace.runs.bench.table, by hand."""

import csv
import io

from tfplace.runs.bench.table import COLUMNS, as_markdown, as_text, draw_curves, summary
from tfplace.runs.tables import csv_text


def row(model, algorithm, seed, step_seconds, single=4.0, max_trials=10):
    return {
        "model": model,
        "cluster": "k80x2",
        "algorithm": algorithm,
        "seed": seed,
        "max_trials": max_trials,
        "budget_seconds": 60.0,
        "trials": 10,
        "infeasible_trials": 0,
        "seconds": 1.5,
        "step_seconds": step_seconds,
        "feasible": step_seconds is not None,
        "single_step_seconds": single,
        "lower_bound_seconds": 1.0,
        "history": [] if step_seconds is None else [[0, 0.1, 5.0], [9, 1.0, step_seconds]],
    }


ROWS = [
    row("a", "random", 1, 4.0),
    row("a", "random", 2, 1.0),
    row("a", "post", 1, 1.0),
    row("a", "post", 2, 1.0),
    # No single device holds this one: shares are of the best found.
    row("b", "random", 1, 6.0, None),
    row("b", "random", 2, 6.0, None),
    row("b", "post", 1, 2.0, None),
    row("b", "post", 2, 8.0, None),
    row("c", "random", 1, 2.0),
    row("c", "random", 2, None),
    row("c", "post", 1, 2.0),
    row("c", "post", 2, 2.0),
]
MARKDOWN = """\
Step time over the best single device's, geometric mean over seeds; at most 10 trials or 60 s \
each, seeds 1, 2.

| model | cluster | random | post | bound |
|---|---|---:|---:|---:|
| a | k80x2 | 0.500 | **0.250** | 0.250 |
| b | k80x2 | 3.000 | **2.000** | 0.500 |
| c | k80x2 | - | **0.500** | 0.250 |
| geometric mean |  | 1.225 | **0.707** |  |
"""


def test_markdown_whole():
    # Means over a and b only: (½ · 3)^½ and (¼ · 2)^½.
    assert as_markdown(summary(ROWS)) == MARKDOWN


def test_text_fits_a_terminal():
    names = ["random", "colocrl", "hierarchical", "spotlight", "post", "placeto", "local_search"]
    rows = [row("nmt:num_layers=2", name, 1, 1.0, max_trials=None) for name in names]
    text = as_text(summary(rows))
    assert text == (
        "step time over the best single device's, geometric mean over seeds; at most 60 s\n"
        "each, seed 1\n"
        "nmt:num_layers=2 on k80x2\n"
        "  random 0.250  colocrl 0.250  hierarchical 0.250  spotlight 0.250  post 0.250\n"
        "  placeto 0.250  local_search 0.250  bound 0.250\n"
    )


def test_csv_has_a_line_per_row():
    lines = list(csv.DictReader(io.StringIO(csv_text(COLUMNS, ROWS))))
    assert len(lines) == len(ROWS)
    assert (lines[0]["step_seconds"], lines[9]["step_seconds"]) == ("4.0", "")
    assert "history" not in lines[0]


def test_curves_are_a_picture(tmp_path):
    for name, rows in (("trials", ROWS), ("seconds", [{**r, "max_trials": None} for r in ROWS])):
        path = tmp_path / f"{name}.png"
        draw_curves(rows, str(path))
        assert path.read_bytes().startswith(b"\x89PNG")
