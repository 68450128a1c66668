"""Splits: as many distinct graphs as asked for, none in both parts, the same for a seed."""

import pytest

from graphs import zoo
from graphs.errors import UsageError
from tfplace.algorithms.learned.training.families import FAMILIES, split_family


@pytest.mark.parametrize("family", FAMILIES)
def test_thirty_two_graphs_are_split_24_to_8_without_overlap(family):
    split = split_family(family, 32, seed=0)
    assert (len(split.train), len(split.test)) == (24, 8)
    assert len({*split.train, *split.test}) == 32
    for spec in split.train + split.test:
        name, options = zoo.parse(spec)
        assert (name, set(options)) == (family, set(FAMILIES[family]))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_smallest_and_the_largest_variation_can_be_built(family):
    for pick in (min, max):
        sizes = {name: pick(values) for name, values in FAMILIES[family].items()}
        assert zoo.build(family, **sizes).num_parameters > 0


def test_the_seed_decides():
    assert split_family("nmt", 8, seed=1) == split_family("nmt", 8, seed=1)
    assert split_family("nmt", 8, seed=1) != split_family("nmt", 8, seed=2)


def test_two_graphs_are_one_to_train_on_and_one_to_judge_by():
    split = split_family("cifar10", 2, seed=0)
    assert (len(split.train), len(split.test)) == (1, 1)


@pytest.mark.parametrize(
    ("family", "num_graphs", "found"),
    [("rnnml", 32, "did you mean 'rnnlm'"), ("cifar10", 65, "2 to 64"), ("cifar10", 1, "2 to 64")],
)
def test_what_does_not_exist_is_a_usage_error(family, num_graphs, found):
    with pytest.raises(UsageError, match=found):
        split_family(family, num_graphs, seed=0)
