"""Tables and transcripts of the documents are what the kept results say."""

import json
import re
from pathlib import Path

import pytest

from tests.tables import rewrite_docs
from tests.tables.rewrite_docs import DEMO, ROOT, key_lines, main, pages, rewritten, table
from tfplace.commands.parse import parse

RESULTS = ROOT / "tfplace" / "docs" / "benchmarks" / "results"
NAMES = sorted(path.stem for path in RESULTS.glob("*.json"))
BLOCK = re.compile(r"^<!-- (table|transcript|key lines): (\w+) -->\n.*?^<!-- end -->$", re.M | re.S)
SPEEDS = {
    "command": "tfplace bench",
    "machine": "a fast one",
    "commit": "abc1234",
    "transcribed": False,
    "bold": ["one", "two"],
    "columns": [
        {"name": "model"},
        {"name": "one", "format": ".2f"},
        {"name": "two", "format": ".2f"},
        {"name": "bound", "format": ".2f"},
        {"name": "trials", "format": ",d"},
    ],
    "rows": [["rnnlm", 0.5, 0.25, 0.125, 1000], ["nmt", 0.75, None, 0.5, 2]],
}
SPEEDS_TABLE = """
| model | one | two | bound | trials |
| --- | ---: | ---: | ---: | ---: |
| rnnlm | 0.50 | **0.25** | 0.12 | 1,000 |
| nmt | **0.75** |  | 0.50 | 2 |

*`tfplace bench`; a fast one; commit abc1234.*

"""


@pytest.fixture
def checkout(tmp_path):
    """A repository's root with one page of two blocks and a README."""
    results = tmp_path / "tfplace/docs/benchmarks/results"
    results.mkdir(parents=True)
    (results / "speeds.json").write_text(json.dumps(SPEEDS))
    (tmp_path / "tfplace/docs/page.md").write_text(
        "before\n<!-- table: speeds -->\nold\n<!-- end -->\nafter\n"
        "<!-- transcript: demo -->\n<!-- end -->\n"
    )
    (tmp_path / "README.md").write_text("<!-- key lines: demo -->\n<!-- end -->\n")
    return tmp_path


def test_no_page_is_stale():
    stale = [
        str(page.relative_to(ROOT))
        for page in pages(ROOT)
        if rewritten(page.read_text(encoding="utf-8"), RESULTS) != page.read_text(encoding="utf-8")
    ]
    assert stale == [], "run `make docs DOCS_FLAGS=--nodemo`"


@pytest.mark.parametrize("name", NAMES)
def test_a_result_says_where_it_comes_from_and_is_shown(name):
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert all(isinstance(result[key], str) for key in ("command", "machine", "commit"))
    assert isinstance(result["transcribed"], bool)
    assert ("rows" in result) != ("lines" in result)
    names = {column["name"] for column in result.get("columns", ())}
    assert names >= set(result.get("bold", ()))
    shown = "".join(page.read_text(encoding="utf-8") for page in pages(ROOT))
    assert name in {shown_name for _, shown_name in BLOCK.findall(shown)}
    if result["command"].startswith("tfplace "):
        _, command, *words = result["command"].split()
        parse(command, words)


@pytest.mark.parametrize(
    "page", sorted((ROOT / "tfplace/docs/benchmarks").glob("[a-z]*.md")), ids=lambda page: page.name
)
def test_benchmark_pages_have_no_table_written_by_hand(page):
    by_hand = BLOCK.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in by_hand.splitlines() if line.startswith("|")] == []


def test_a_table_has_its_formats_the_least_in_bold_and_its_origin():
    assert table(SPEEDS) == SPEEDS_TABLE


def test_a_transcribed_table_and_its_note_are_sentences():
    result = {**SPEEDS, "command": "by hand", "note": "share of single", "transcribed": True}
    assert table(result).splitlines()[-2] == (
        "*Share of single. By hand; a fast one; commit abc1234. Transcribed: the raw results are "
        "not kept.*"
    )


def test_key_lines_are_kept_with_what_continues_them():
    lines = ["$ tfplace", "search    auto", "verdict   placed: as", "          fast", "links     2"]
    shown = key_lines({"lines": lines, "machine": "m", "commit": "c"})
    assert shown == "\n```\nverdict   placed: as\n          fast\n```\n\n*m; commit c.*\n\n"


def test_a_checkout_is_rewritten_once_from_a_given_transcript(checkout, capsys):
    (checkout / "session.txt").write_text("$ tfplace optimize\nverdict   placed\nlinks     2\n")
    words = [f"--transcript={checkout / 'session.txt'}"]
    main(words, checkout)
    assert capsys.readouterr().out == "rewrote README.md\nrewrote tfplace/docs/page.md\n"
    page = (checkout / "tfplace/docs/page.md").read_text()
    head = f"before\n<!-- table: speeds -->\n{SPEEDS_TABLE}<!-- end -->\nafter\n"
    assert page.startswith(f"{head}<!-- transcript: demo -->\n\n```\n$ tfplace optimize\n")
    assert "\n```\nverdict   placed\n```\n" in (checkout / "README.md").read_text()
    main(["--nodemo"], checkout)
    assert capsys.readouterr().out == ""


def test_without_flags_the_demo_runs(checkout, monkeypatch):
    monkeypatch.setattr(rewrite_docs, "run_demo", lambda root: [f"$ {DEMO[0]}", "verdict   placed"])
    main([], checkout)
    kept = json.loads((checkout / "tfplace/docs/benchmarks/results/demo.json").read_text())
    assert kept["lines"] == [f"$ {DEMO[0]}", "verdict   placed"]
    assert not kept["transcribed"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<!-- table: speeds -->\n| a |\n", ValueError),
        ("<!-- table: nothing -->\n<!-- end -->\n", FileNotFoundError),
    ],
)
def test_a_page_that_cannot_be_rewritten_is_an_error(checkout, text, error):
    with pytest.raises(error):
        rewritten(text, checkout / "tfplace/docs/benchmarks/results")


@pytest.mark.parametrize("file", ["Makefile", "README.md"])
def test_the_demo_is_the_same_everywhere(file):
    """README shows its commands, `make demo` and `make docs` run them."""
    text = (ROOT / file).read_text(encoding="utf-8").replace("$(BIN)/", "")
    joined = " ".join(text.replace("\\\n", " ").split())
    assert [command for command in DEMO if command not in joined] == []


def test_the_demo_runs_in_the_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(rewrite_docs, "DEMO", ("tfplace --version", "tfplace --help"))
    monkeypatch.setenv("PYTHONPATH", str(Path(ROOT)))
    lines = rewrite_docs.run_demo(tmp_path)
    assert lines[0] == "$ tfplace --version"
    assert lines[1].startswith("tfplace ")
    assert lines[2] == "$ tfplace --help"
    assert "usage: tfplace COMMAND [ARGS] [--flags]" in lines
