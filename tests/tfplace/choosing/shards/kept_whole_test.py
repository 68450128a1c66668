"""Which ops a search leaves whole; a placement of such a step is read as it was written."""

import dataclasses
import json
import math

import numpy as np
import pytest

from graphs import zoo
from graphs.placement_file import ops_left_whole as read_left_whole
from graphs.placement_file import read_placement
from rewrite.split.decide.analysis import LEFT_WHOLE
from tfplace.algorithms.placers.data_parallel import data_parallel
from tfplace.choosing.data_parallel import data_parallel_baseline, data_parallel_candidate
from tfplace.choosing.shards.kept_whole import ops_left_whole
from tfplace.preparing.options import ProblemOptions
from tfplace.preparing.prepare import prepare
from tfplace.report.split_facts import split_facts
from tfplace.simulation.simulated import simulated


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """A mixture of four experts whose weights outweigh its few tokens."""
    path = str(tmp_path_factory.mktemp("mixture") / "model.pb")
    sizes = {"hidden_size": 256, "inner_size": 1024, "num_experts": 4, "num_layers": 1}
    zoo.write(zoo.build("moe", "tiny", batch_size=8, **sizes), path)
    return prepare(ProblemOptions(path, cluster="v100x4", order="edges"))


@pytest.fixture(scope="module")
def left(mixture):
    """What is left whole where that is better than all split: so few tokens need no shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfplace.choosing.shards.kept_whole.WORTH_BESIDE_UNSPLIT", math.inf)
        return ops_left_whole(mixture, None)


def _split(mixture, left, num_shards=4):
    path = mixture.source.path
    options = ProblemOptions(
        path, cluster="v100x4", order="edges", num_shards=num_shards, left_whole=left
    )
    return options, prepare(options, earlier=mixture)


def test_experts_are_left_whole(mixture, left):
    names = mixture.problem.graph.op_names
    products = {
        name
        for name, kind in zip(names, mixture.problem.graph.op_types, strict=True)
        if kind == "MatMul" and "/expert_" in name
    }
    assert len(products) == 24 and products <= left
    assert "layer_0/mixture/MatMul" in names


def test_they_make_a_faster_step_of_the_same_starts(mixture, left):
    steps = []
    for ops in ((), left):
        _, prepared = _split(mixture, ops)
        placement = data_parallel(prepared.problem, in_order_of_use=True, with_layers=True)
        steps.append(simulated(prepared.problem, placement).outcome.step_seconds)
    assert steps[1] < 0.8 * steps[0]


def test_a_placement_file_says_what_was_left_whole(mixture, left, tmp_path):
    options, prepared = _split(mixture, left)
    problem = prepared.problem
    placement = data_parallel(problem, in_order_of_use=True, with_layers=True)
    names, devices = problem.graph.op_names, problem.device_names
    path = tmp_path / "placement.json"
    entries = {name: devices[d] for name, d in zip(names, placement.tolist(), strict=True)}
    path.write_text(json.dumps(entries))
    again = prepare(dataclasses.replace(options, left_whole=read_left_whole(str(path))))
    assert [*again.problem.graph.op_names] == [*names]
    read = read_placement(str(path), names, devices, np.zeros_like(again.given))
    assert simulated(again.problem, read).outcome == simulated(problem, placement).outcome


def test_the_report_says_why_and_that_step_is_no_plain_data_parallelism(mixture, left):
    options, prepared = _split(mixture, left)
    rows = split_facts(prepared.split)["whole_because"]
    assert sum(row["count"] for row in rows if row["reason"] == LEFT_WHOLE) > 24
    assert data_parallel_candidate(prepared) is None
    baseline = data_parallel_baseline(prepared, options)
    evenly = _split(mixture, ())[1]
    assert baseline.step_seconds == data_parallel_candidate(evenly).step_seconds


def test_nothing_is_left_whole_of_timed_ops_or_on_one_device(mixture):
    alone = prepare(ProblemOptions(mixture.source.path, cluster="local"))
    assert ops_left_whole(alone, None) == frozenset()
    timed = dataclasses.replace(mixture.costs, source="measured")
    assert ops_left_whole(dataclasses.replace(mixture, costs=timed), None) == frozenset()


def test_where_hardly_anything_would_be_split_all_is(mixture):
    assert ops_left_whole(mixture, None) == frozenset()


def test_layers_one_after_another_are_split(tmp_path):
    path = str(tmp_path / "model.pb")
    zoo.write(zoo.build("transformer", "tiny", batch_size=8), path)
    assert ops_left_whole(prepare(ProblemOptions(path, cluster="k80x4")), None) == frozenset()
