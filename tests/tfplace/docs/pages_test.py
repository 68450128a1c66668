"""What the pages in tfplace/docs show is there, is shipped, and their cluster files load."""

import json
import re
import subprocess
import sys

import pytest

from graphs.clusters.cluster_file import cluster_from_json
from tests.documents import DOCS, README, ROOT, blocks, commands
from tfplace.algorithms.table import names
from tfplace.commands.parse import parse

PAGES = sorted(DOCS.rglob("*.md"))
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))


@pytest.mark.parametrize(
    "page", [README, ROOT / "BUILD_NOTES.md", *PAGES], ids=lambda page: page.name
)
def test_links_and_pictures_are_there(page):
    prose = re.sub(r"^```.*?^```$|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", prose)
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_picture_is_shown():
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = sorted(path.name for path in (DOCS / "pictures").iterdir())
    assert pictures == [name for name in pictures if f"](pictures/{name})" in shown]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_can_be_found_from_the_readme(page):
    """By links, over as many pages as it takes."""
    reached, left = set(), [README]
    while left:
        here = left.pop()
        if here in reached or here.suffix != ".md":
            continue
        reached.add(here)
        targets = re.findall(r"\]\(([^)#:]+)\)", here.read_text(encoding="utf-8"))
        left += [(here.parent / target).resolve() for target in targets]
    assert page in reached


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_a_decision_has_all_its_parts_in_their_order(page):
    text = page.read_text(encoding="utf-8")
    assert re.fullmatch(r"\d{3}-[a-z0-9-]+\.md", page.name)
    assert text.startswith(f"# {page.name[:3]} ")
    parts = re.findall(r"^\*\*(Question|Decision|Command|Commit)\b", text, re.M)
    assert parts == ["Question", "Decision", "Command", "Commit"]
    assert len(text.splitlines()) <= 60


def test_build_notes_list_each_decision_once_by_its_title():
    notes = (ROOT / "BUILD_NOTES.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[([^]]+)\]\(tfplace/docs/decisions/([^)]+)\)", notes, re.M)
    titles = [page.read_text(encoding="utf-8").splitlines()[0][2:] for page in DECISIONS]
    assert [(" ".join(title.split()), name) for title, name in listed] == [
        (title, page.name) for title, page in zip(titles, DECISIONS, strict=True)
    ]


@pytest.mark.parametrize(("page", "most"), [("README.md", 180), ("BUILD_NOTES.md", 150)])
def test_a_page_stays_short(page, most):
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= most


def test_the_contract_has_short_lines():
    lines = (DOCS / "contract.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 160] == []


@pytest.mark.parametrize("page", [README, ROOT / "BUILD_NOTES.md", *PAGES], ids=lambda p: p.name)
def test_files_and_tests_that_a_page_names_are_there(page):
    """With their folders from the root, or from inside a package."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w./])((?:[a-z_]+/)+[a-z_]+\.py|tests/[\w/]+\b(?!\.py))", text)
    packages = [ROOT, ROOT / "tfplace", ROOT / "tfplace" / "report"]
    missing = [name for name in named if not any((root / name).exists() for root in packages)]
    assert missing == []


def test_all_documents_are_shipped(tmp_path):
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)

    def files(folder):
        paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        return sorted(path for path in paths if path.suffix != ".pyc")

    assert files(tmp_path / "tfplace" / "docs") == files(DOCS)


def test_cluster_files_load():
    shown = blocks(DOCS / "clusters.md", "json")
    box, tower, hosts = (cluster_from_json(json.loads(block)) for block in shown)
    assert (box.name, box.num_devices) == ("box", 3)
    assert (tower.name, tower.num_devices) == ("tower", 4)
    assert tower.link_bytes_per_second[1, 2] == tower.link_bytes_per_second[2, 1] == 48e9
    assert tower.link_bytes_per_second[0, 1] == 10e9
    assert [device.address for device in hosts.devices] == ["10.0.0.1:2222"] * 2 + [
        "10.0.0.2:2222"
    ] * 2


WITH_COMMANDS = [
    README,
    *(
        DOCS / f"{name}.md"
        for name in (
            *("algorithms", "batch", "clusters", "multiple_hosts", "other_graphs", "parallelism"),
            *("troubleshooting", "your_model", "benchmarks/demo"),
        )
    ),
]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_commands_are_commands(page):
    """Those in blocks, and those with flags in the text."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    inline = re.findall(r"`(tfplace [a-z]+ [^`]*--[^`]+)`", text)
    shown = [*commands(page), *(words for words in inline if not words.endswith("--help"))]
    assert shown
    for command in shown:
        name, *words = command.split()[1:]
        parse(name, words)


def test_every_algorithm_is_told_of():
    page = (DOCS / "algorithms.md").read_text(encoding="utf-8")
    assert [name for name in names() if f"`{name}" not in page] == []
