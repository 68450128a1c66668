"""What the pages in tfplace/docs show is there, and their cluster files load."""

import json
import re
from pathlib import Path

import pytest

from graphs.clusters.cluster_file import cluster_from_json
from tfplace.algorithms.table import names
from tfplace.commands.parse import parse

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "tfplace" / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def blocks(page, language):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_and_pictures_are_there(page):
    prose = re.sub(r"^```.*?^```$|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", prose)
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_picture_is_shown():
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = sorted(path.name for path in (DOCS / "pictures").iterdir())
    assert pictures == [name for name in pictures if f"](pictures/{name})" in shown]


def test_cluster_files_load():
    tower, hosts = (cluster_from_json(json.loads(b)) for b in blocks("clusters.md", "json"))
    assert (tower.name, tower.num_devices) == ("tower", 4)
    assert tower.link_bytes_per_second[1, 2] == tower.link_bytes_per_second[2, 1] == 48e9
    assert tower.link_bytes_per_second[0, 1] == 10e9
    assert [device.address for device in hosts.devices] == ["10.0.0.1:2222"] * 2 + [
        "10.0.0.2:2222"
    ] * 2


def commands(page):
    """Commands in blocks, and whole ones in captions."""
    shown = "".join(blocks(page, "")).replace("\\\n", " ")
    yield from re.findall(r"^(?:\$ )?(tfplace .+)$", shown, re.M)
    text = (DOCS / page).read_text(encoding="utf-8")
    yield from re.findall(r"`(tfplace bench --[^`]+)`", text)


@pytest.mark.parametrize("page", ["algorithms.md", "clusters.md"])
def test_commands_are_commands(page):
    found = [command.split()[1:] for command in commands(page)]
    assert found
    for name, *words in found:
        parse(name, words)


def test_every_algorithm_is_told_of():
    page = (DOCS / "algorithms.md").read_text(encoding="utf-8")
    assert [name for name in names() if f"`{name}" not in page] == []
