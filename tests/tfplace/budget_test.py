"""The table of what seconds are spent on: read, used, and printed in the contract."""

import re
from pathlib import Path

import pytest

from tfplace.budget import PARTS, TABLE, Part

ROOT = Path(__file__).parents[2]


def test_a_part_is_a_share_within_its_least_and_most():
    part = Part(0.1, 2.0, 5.0)
    assert [part.of(seconds) for seconds in (0.0, 30.0, 100.0)] == [2.0, 3.0, 5.0]
    assert PARTS["number_of_shards"].of(60.0) == pytest.approx(3.6)
    assert [PARTS["writing"].of(num_ops) for num_ops in (600, 15_000, 40_000)] == [12.0, 15.0, 22.0]


def test_the_contract_prints_the_table():
    assert TABLE in (ROOT / "tfplace/docs/contract.md").read_text("utf-8")


def test_every_part_is_taken_somewhere_and_none_is_missing():
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "tfplace").rglob("*.py"))
    assert {name for name in PARTS if f'"{name}"' not in sources} == set()
    assert {*re.findall(r'PARTS\["(\w+)"\]', sources)} <= PARTS.keys()
