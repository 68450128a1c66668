"""Foreign models, split into 2, 3 and 4 shards: all with `pytest -m corpus`, few in the suite."""

import pytest

from tests.corpus.all_models import CORPUS
from tests.corpus.check_split import check_split

QUICK = [("trained_while_loop", 3), ("v1_trained_dynamic_rnn", 2)]
CHEAP = [name for name, entry in CORPUS.items() if not entry.refused and not entry.heavy]


def by_hand(name, num_shards):
    marks = () if (name, num_shards) in QUICK else pytest.mark.corpus
    return pytest.param(name, num_shards, marks=marks)


@pytest.mark.parametrize(
    ("name", "num_shards"), [by_hand(name, count) for name in CHEAP for count in (2, 3, 4)]
)
def test_it_computes_the_same_in_shards(name, num_shards, tmp_path):
    result = check_split(CORPUS[name], tmp_path, num_shards)
    assert not result.wrong
    # Served models may need tables that only an initialisation fills.
    assert result.num_compared or (result.mode == "inference" and result.why_not)
