"""A family of graphs and a policy that train in a second."""

import dataclasses

import pytest

from tfplace.algorithms.learned.training import families


@pytest.fixture(scope="session")
def small_config():
    from tfplace.algorithms.learned.training.training import CONFIG

    grouping = dataclasses.replace(CONFIG.grouping, max_groups=4)
    return dataclasses.replace(CONFIG, units=4, rounds=1, grouping=grouping)


@pytest.fixture(scope="session")
def small_family():
    """A family of four tiny graphs."""
    with pytest.MonkeyPatch.context() as patch:
        sizes = {"size": ("tiny",), "num_layers": (1,)}
        options = {**sizes, "num_steps": (4, 6), "batch_size": (2, 4)}
        patch.setitem(families.FAMILIES, "transformer", options)
        yield "transformer"


@pytest.fixture(scope="session")
def recipe(small_family):
    from tfplace.algorithms.learned.training.checkpoint import Recipe

    return Recipe(small_family, ("k80x2",), num_graphs=3, seed=5)


@pytest.fixture(scope="session")
def trained(recipe, small_config):
    """What four episodes on two graphs give."""
    from tfplace.algorithms.learned.training.training import TrainingLimits, train

    return train(recipe, TrainingLimits(4, 600.0), config=small_config).checkpoint
