"""Whole training steps, split: loss and variables after two steps are those of the unsplit step."""

import pytest

from graphs import zoo
from graphs.building.flatten import flatten
from graphs.loading.load import load
from graphs.loading.load_options import LoadOptions
from rewrite.split.decision import Split
from tests.rewrite.split.run_step import assert_same_steps, random_feeds, split_step

STEPS = [("cifar10", 2), ("cifar10", 3), ("rnnlm", 2), ("rnnlm", 3), ("dlrm", 3), ("resnet50", 3)]


@pytest.fixture(params=STEPS, ids=lambda param: f"{param[0]}-{param[1]}")
def step(request, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("zoo") / "model.pb")
    zoo.write(zoo.build(request.param[0], size="tiny", batch_size=5), path)
    source = load(path, LoadOptions())
    return flatten(source.graph_def, source.feeds, source.fetches), request.param[1]


def test_two_steps_are_the_same(step):
    step, num_shards = step
    feeds = random_feeds(step)
    decisions, split = split_step(step, 5, num_shards, dict.fromkeys(feeds, 0))
    assert sum(isinstance(a, Split) for a in decisions.answer_of_op.values()) > 30
    assert_same_steps(step, split, feeds, variables_rtol=1e-3, variables_atol=2e-5)
