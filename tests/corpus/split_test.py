"""Foreign models, split into 2, 3 and 4 shards: all with `pytest -m corpus`, few in the suite."""

import pytest

from graphs.errors import UsageError
from tests.corpus.all_models import CORPUS
from tests.corpus.check_split import check_split

QUICK = [
    ("trained_while_loop", 3),
    ("v1_trained_dynamic_rnn", 2),
    ("v1_queue_input", 3),
    ("dense_hash_table", 2),
]
CHEAP = [name for name, entry in CORPUS.items() if not entry.refused and not entry.heavy]
FIXED_BATCH = {"tf_keras_stateful_rnn": 2, "v1_queue_input": 2}
"""{model: entries of the only batch that it takes}; it can't be split into more shards."""


def by_hand(name, num_shards):
    marks = () if (name, num_shards) in QUICK else pytest.mark.corpus
    return pytest.param(name, num_shards, marks=marks)


def cases(fit):
    """Models and numbers of shards, at most as many as entries of the batch, or more."""
    return [
        by_hand(name, count)
        for name in CHEAP
        for count in (2, 3, 4)
        if (count <= FIXED_BATCH.get(name, count)) == fit
    ]


@pytest.mark.parametrize(("name", "num_shards"), cases(fit=True))
def test_it_computes_the_same_in_shards(name, num_shards, tmp_path):
    result = check_split(CORPUS[name], tmp_path, num_shards)
    assert not result.wrong
    # Served models may need tables that only an initialisation fills.
    assert result.num_compared or (result.mode == "inference" and result.why_not)


@pytest.mark.parametrize(("name", "num_shards"), cases(fit=False))
def test_more_shards_than_entries_are_refused(name, num_shards, tmp_path):
    entries = FIXED_BATCH[name]
    wanted = f"^splitting the step into {num_shards} parts: found a batch of {entries} entries; "
    with pytest.raises(UsageError, match=wanted):
        check_split(CORPUS[name], tmp_path, num_shards)
