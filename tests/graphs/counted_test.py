"""Tests of graphs.counted."""

import pytest

from graphs.counted import counted


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((0, "op"), "0 ops"),
        ((1, "signature"), "1 signature"),
        ((12345, "op"), "12,345 ops"),
        ((1, "entry", "entries"), "1 entry"),
        ((2, "entry", "entries"), "2 entries"),
    ],
)
def test_a_noun_stands_in_its_number(words, text):
    assert counted(*words) == text
