"""Keyword arguments as flags: what a command line can say, and nothing else."""

import numpy as np
import pytest

from graphs.errors import UsageError
from graphs.loading.feeds import given_arrays
from tfplace.api.flags import flag_values


def test_numbers_of_any_kind_and_lists_are_words():
    given = {"seed": np.int64(3), "budget_seconds": np.float64(0.5), "pin": ("a=b", "c=d")}
    with flag_values("optimize", ["m.pb"], {**given, "overwrite": True, "shards": 2}) as values:
        assert (values.seed, values.budget_seconds, values.pin) == (3, 0.5, ["a=b", "c=d"])
        assert values.overwrite and values.shards == "2"


def test_arrays_to_feed_may_have_any_name():
    arrays = {"file": [1.5], "a/x:0": np.array([b"text"], object)}
    with flag_values("optimize", ["m.pb"], {"feed": arrays}) as values:
        read = given_arrays(values.feed)
        assert (read["file"].tolist(), read["a/x:0"].tolist()) == ([1.5], [b"text"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"feed": {"x": [[1], [2, 3]]}}, "reading feed: 'x' is no array"),
        ({"shards": True}, "reading shards=True: found bool; wanted what --shards takes"),
        ({"shards": [2, 4]}, r"reading shards=\[2, 4\]: found list; wanted what --shards takes"),
        ({"pin": 3.5j}, "found complex; wanted what --pin takes on the command line, or a list of"),
        ({"overwrite": [True]}, "reading overwrite="),
        ({"shard": True}, "there is no flag --shard"),
    ],
)
def test_what_no_word_could_say_is_told(given, said):
    with pytest.raises(UsageError, match=said), flag_values("optimize", ["m.pb"], given):
        pass


def test_a_command_that_there_is_not_is_told_with_what_was_meant():
    with (
        pytest.raises(UsageError, match=r"there is no command 'benhc'; did you mean 'bench'\?"),
        flag_values("benhc", [], {}),
    ):
        pass
