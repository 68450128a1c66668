"""Models of real libraries, by hand: `pytest -m libraries`, an hour and more."""

import pytest

from tests.corpus.libraries.__main__ import check
from tests.corpus.libraries.all_models import LIBRARIES


@pytest.mark.libraries
@pytest.mark.parametrize("name", LIBRARIES)
def test_it_is_placed_and_computes_the_same(name):
    row = check(name, "--cluster=workers:2 --budget_seconds=10")
    assert row["status"] == 0, row["outcome"]
    assert row["equal"], row["compared"]
