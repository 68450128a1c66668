"""Foreign models: all with `pytest -m corpus` (or `python -m tests.corpus`), few in the suite."""

import pytest

from tests.corpus.all_models import CORPUS
from tests.corpus.check_model import check_model

QUICK = [name for name, entry in CORPUS.items() if entry.refused and entry.family != "keras_models"]
QUICK += ["several_signatures"]
ALL = [pytest.param(name, marks=() if name in QUICK else pytest.mark.corpus) for name in CORPUS]


@pytest.mark.parametrize("name", ALL)
def test_it_is_placed_and_computes_the_same_or_is_refused(name, tmp_path):
    entry = CORPUS[name]
    wanted = "refused" if entry.refused else "same"
    assert check_model(entry, tmp_path, as_user=False).outcome == wanted
