"""A search killed after any update goes on with the trials of one that never stopped."""

import dataclasses
import fcntl
import json

import numpy as np
import pytest

from graphs.errors import CheckpointError, OutputError
from graphs.problem import Infeasible, Measurement, Placement
from tests.builders import Machine, two_towers
from tests.fakes import NEVER_FITS
from tfplace.algorithms.learned.config import PostConfig
from tfplace.algorithms.learned.post import Post
from tfplace.algorithms.placers.one_shot import OneShot, Random, single_devices
from tfplace.algorithms.table import policy_of
from tfplace.grouping.grouped_problem import GroupingConfig
from tfplace.search.instance import Instance
from tfplace.search.kept.folder import SearchFolder, locked_folder, problem_digest
from tfplace.search.kept.state import SearchState, StageStart
from tfplace.search.search import Limits, Stage, search
from tfplace.search.trial import Trial
from tfplace.simulation.evaluator import SimulatingEvaluator

PROBLEM = two_towers(5, machine=Machine(2, bandwidth=1e6, types=["GPU", "GPU"]))
ZEROS = np.zeros(PROBLEM.num_ops, dtype=np.int32)
INSTANCE = Instance(PROBLEM, ZEROS)
POST = PostConfig(GroupingConfig(max_groups=6), elite_period=20)
IDENTITY = {"model": "m", "seed": 3}


def post(best):
    return Post(PROBLEM, 3, POST, start=best)


def known(name, share=1.0):
    return Stage(name, lambda best: policy_of(name, INSTANCE, 3, best), share)


STAGES = {
    "random": [Stage("random", lambda best: Random(PROBLEM, 3, batch_size=7))],
    "local_search": [
        Stage("local_search", lambda best: policy_of("local_search", INSTANCE, 3, best))
    ],
    "post": [Stage("post", post)],
    "fixed, single, annealing, post": [
        Stage("fixed", lambda best: OneShot(lambda: ZEROS[None])),
        Stage("single", lambda best: OneShot(lambda: single_devices(PROBLEM))),
        known("annealing", 0.8),
        Stage("post", post),
    ],
}


class Killed(BaseException):
    """Stands for kill -9: what is not on the disk is lost."""


def run(name, folder, max_trials, num_updates=None):
    """One run of the search; it is killed after so many updates."""
    kept = SearchFolder(str(folder), IDENTITY)
    left = [num_updates]

    def update(progress):
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

    evaluator = SimulatingEvaluator(PROBLEM, 1)
    return search(STAGES[name], evaluator, Limits(1e6, max_trials), update, kept)


def trials_in(folder):
    rows = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in row if key != "seconds"} for row in rows]


@pytest.mark.parametrize("name", STAGES)
def test_a_search_killed_again_and_again_has_the_trials_of_one_that_never_was(name, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    expected = run(name, whole, 330)
    num_kills = 0
    for num_updates in (0, 1, 0, 3, 2, 5):
        try:
            run(name, killed, 330, num_updates)
        except Killed:
            num_kills += 1
    assert num_kills >= 5
    assert SearchFolder(str(killed), IDENTITY).state.stage.number == len(STAGES[name]) - 1
    found = run(name, killed, 330)
    assert trials_in(killed) == trials_in(whole)
    assert found.num_trials == expected.num_trials
    assert found.best.index == expected.best.index
    assert found.best.outcome == expected.best.outcome
    np.testing.assert_array_equal(
        found.best.placement.device_of_op, expected.best.placement.device_of_op
    )
    assert [(row[0], row[2]) for row in found.history] == [
        (row[0], row[2]) for row in expected.history
    ]
    assert [row[:2] for row in found.stages] == [row[:2] for row in expected.stages]
    again = run(name, killed, 330)  # done: nothing is evaluated but what was not learned from
    assert trials_in(killed) == trials_in(whole)
    assert again.num_trials == expected.num_trials


def test_more_trials_may_be_asked_for_than_at_first(tmp_path):
    for name, limits in (("one", (300,)), ("two", (98, 300))):
        (tmp_path / name).mkdir()
        for limit in limits:
            run("random", tmp_path / name, limit)
    assert trials_in(tmp_path / "one") == trials_in(tmp_path / "two")


def test_seconds_of_all_runs_count(tmp_path):
    (tmp_path / "x").mkdir()
    run("random", tmp_path / "x", 70)
    kept = SearchFolder(str(tmp_path / "x"), IDENTITY)
    kept.save(dataclasses.replace(kept.state, seconds=50.0))
    kept = SearchFolder(str(tmp_path / "x"), IDENTITY)
    result = search(STAGES["random"], NEVER_FITS, Limits(40.0), keeper=kept)
    assert result.num_trials == 70 and result.seconds >= 50.0
    assert [row[:2] for row in result.stages] == [("random", 70)]


def test_a_state_comes_back_as_it_was(tmp_path):
    best = Trial(4, 1.5, Placement(np.array([0, 1], dtype=np.int32)),
                 Measurement(0.25, (3, 4), "measured"))  # fmt: skip
    worst = Trial(2, 0.5, Placement(np.array([1, 0], dtype=np.int32)),
                  Infeasible("memory", "too full", (9, np.int64(8))))  # fmt: skip
    state = SearchState(
        stage=StageStart(1, 3, 1.25, np.array([1, 1], dtype=np.int32)),
        policy={"rng": np.array("text"), "policy/0": np.ones((2, 3), dtype=np.float32)},
        num_trials=np.int64(5), num_infeasible=1, seconds=2.5, best=best, best_stage="post",
        least_infeasible=worst, history=[(0, 0.5, 1.0), (4, 1.5, 0.25)], notes=["a note"],
        stages=[("single", 3, 1.25)],
    )  # fmt: skip
    SearchFolder(str(tmp_path), IDENTITY).save(state)
    found = SearchFolder(str(tmp_path), IDENTITY).state
    np.testing.assert_equal(dataclasses.asdict(found), dataclasses.asdict(state))


def test_costs_and_start_are_those_of_the_first_run(tmp_path):
    first = SearchFolder(str(tmp_path), IDENTITY)
    costs = np.array([[1.0, np.inf]])
    assert first.costs(costs) is costs and first.start(ZEROS) is ZEROS
    first.save(SearchState(stage=StageStart(0, 0, 0.0, None), policy={}))
    second = SearchFolder(str(tmp_path), IDENTITY)
    np.testing.assert_array_equal(second.costs(costs * 2), costs)
    np.testing.assert_array_equal(second.start(ZEROS + 1), ZEROS)
    with pytest.raises(CheckpointError, match=r"costs.npy holds no costs of this model"):
        second.costs(np.array([[1.0, 2.0]]))
    (tmp_path / "costs.npy").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"costs.npy can't be read"):
        second.costs(costs)


def test_what_is_damaged_or_another_searchs_is_refused_in_words(tmp_path):
    run("random", tmp_path, 70)
    state, trials = tmp_path / "search.npz", tmp_path / "trials.jsonl"
    with pytest.raises(CheckpointError, match="made with seed 3, this is 4; give the same model"):
        SearchFolder(str(tmp_path), {**IDENTITY, "seed": 4})
    lines = trials.read_text()
    trials.write_text(lines + '{"trial": ')
    SearchFolder(str(tmp_path), IDENTITY)
    assert trials.read_text() == lines
    trials.write_text("")
    with pytest.raises(CheckpointError, match="shorter than it was"):
        SearchFolder(str(tmp_path), IDENTITY)
    trials.write_text(lines)
    content = state.read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"PK" + content[9:]):
        state.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"search.npz can't be read"):
            SearchFolder(str(tmp_path), IDENTITY)
    np.savez(state, facts=np.array(json.dumps({"kind": "x", "version": 1, "identity": {}})))
    with pytest.raises(CheckpointError, match="of kind 'x', version 1"):
        SearchFolder(str(tmp_path), IDENTITY)
    facts = {"kind": "tfplace search", "version": 3, "identity": IDENTITY, "best": None}
    np.savez(state, facts=np.array(json.dumps(facts)))
    with pytest.raises(CheckpointError, match="lacks something"):
        SearchFolder(str(tmp_path), IDENTITY)


def test_a_policy_of_another_size_is_an_error_in_words(tmp_path):
    run("post", tmp_path, 40)
    kept = SearchFolder(str(tmp_path), IDENTITY)
    smaller = PostConfig(GroupingConfig(max_groups=2), elite_period=20)
    stage = Stage("post", lambda best: Post(PROBLEM, 3, smaller))
    with pytest.raises(CheckpointError, match="post can't take up the state"):
        search([stage], SimulatingEvaluator(PROBLEM, 1), Limits(1e6, 99), keeper=kept)


def test_a_problem_is_known_by_all_but_its_costs():
    slower = dataclasses.replace(PROBLEM, op_seconds=PROBLEM.op_seconds * 2)
    fuller = dataclasses.replace(PROBLEM, memory_reserve=0.5)
    assert problem_digest(PROBLEM) == problem_digest(slower) != problem_digest(fuller)


def test_a_folder_belongs_to_one_process_at_a_time(tmp_path):
    folder = tmp_path / "deep" / "x"
    with locked_folder(folder, "keeping it", "--flag"):
        pass
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = locked_folder(folder, "keeping it", "--flag")
        with pytest.raises(OutputError, match="keeping it: another process of tfplace"), held:
            pass
    nowhere = locked_folder(folder / ".lock" / "y", "keeping it", "--flag")
    with pytest.raises(OutputError, match="give another --flag"), nowhere:
        pass
