"""--shards=auto writes the number of shards whose step really runs fastest."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from graphs.problem import Infeasible, Measurement
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.choose import Choice
from tfplace.choosing.find_placement import Searched
from tfplace.choosing.outcomes import Found
from tfplace.choosing.real_runs import shard_count_contest as beside_others
from tfplace.choosing.real_runs.shard_count_contest import time_beside_others
from tfplace.choosing.unsplit_baselines import TriedShards
from tfplace.measurement.run_measurement import Timings
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.progress import Progress

OPTIONS = OptimizeOptions(ProblemOptions("model", cluster="workers:2"))
LOST = Infeasible("timeout", "no time was left")


def candidate(name, seconds, *devices):
    """One whose step takes so many milliseconds."""
    outcome = Measurement(1e-3 * seconds, {}, "simulated")
    return Candidate(name, np.array(devices, np.int32), outcome)


def _split(shards):
    return SimpleNamespace(num_shards=shards, step=SimpleNamespace(pieces={}))


def found(shards, seconds=1.0, evenly=1.2, num_ops=2):
    """A stand-in for a problem with a step of two ops; its graphs and runs are their names."""
    single, best = candidate("single", 1.5, 0, 0), candidate("auto", seconds, 0, 1)
    prepared = SimpleNamespace(
        problem=SimpleNamespace(num_ops=num_ops),
        source=object(),
        split=None if shards == 1 else _split(shards),
        cluster=SimpleNamespace(name="workers:2"),
        placed_run_graph=lambda placement: f"{shards} on {placement.tolist()}",
        training_run=lambda: f"run of {shards}",
    )
    candidates = [single, best]
    if shards > 1:
        candidates.insert(1, candidate("data_parallel", evenly, 1, 0))
    tried = [TriedShards(number) for number in (1, 2, 4)]
    return Found(prepared, Searched([single], candidates, result=None, shards=tried))


@pytest.fixture
def real(monkeypatch):
    """What real runs are said to take, and what the comparison afterwards says."""
    said = SimpleNamespace(seconds={}, asked=[], timed=[], unsplit=None, ends=[])

    def measure(variants, run, cluster, limits, compared, held):
        said.asked.append([*variants.values()])
        assert [run[name].split()[-1] for name in variants] == [
            graph.split()[0] for graph in variants.values()
        ]
        seconds = {name: said.seconds.get(graph, 2.0) for name, graph in variants.items()}
        return {
            name: Timings(np.full(5, value), "tf.function", {}, interleaved=True) if value else LOST
            for name, value in seconds.items()
        }

    def compare(found, options, progress, seconds, held, choice, unsplit=None):
        said.timed.append(found.prepared.placed_run_graph(choice.candidate.device_of_op))
        said.unsplit = unsplit
        return SimpleNamespace(prepared=found.prepared, searched=found.searched, choice=choice)

    monkeypatch.setattr(beside_others, "measure_variants", measure)
    child = SimpleNamespace(process=SimpleNamespace(end_after=said.ends.append), begun=set())
    monkeypatch.setattr(beside_others, "child_for", lambda *_: contextlib.nullcontext(child))
    monkeypatch.setattr(
        "tfplace.choosing.outcomes.choose",
        lambda candidates, *_: Choice(candidates[-1], "placed", ""),
    )
    monkeypatch.setattr(beside_others, "time_choice", compare)
    monkeypatch.setattr(beside_others, "has_finalists", lambda prepared, options: True)
    return said


def written(*numbers):
    decided = time_beside_others(numbers[0], numbers[1:], OPTIONS, Progress(), 30.0)
    return decided.prepared.training_run(), decided.choice


def test_each_number_that_is_close_is_timed_and_the_unsplit_step_always(real):
    written(found(2), found(4, seconds=1.25, evenly=1.4), found(8, seconds=1.4), found(1, 9.0))
    assert real.asked == [
        ["2 on [0, 1]", "2 on [1, 0]", "4 on [0, 1]", "8 on [1, 0]", "1 on [0, 0]", "1 on [0, 1]"]
    ]


@pytest.mark.parametrize("fastest", ["2 on [0, 1]", "2 on [1, 0]", "4 on [0, 1]", "1 on [0, 1]"])
def test_the_fastest_is_compared_and_written(real, fastest):
    real.seconds = {fastest: 1.0}
    run, choice = written(found(2), found(4), found(1))
    assert (run, choice.verdict) == (f"run of {fastest[0]}", "placed")
    assert real.timed == [fastest]


def test_what_was_timed_to_choose_is_told_of_each_number(real):
    real.seconds = {"2 on [0, 1]": 1.0, "1 on [0, 1]": 1.5, "4 on [0, 1]": 0, "4 on [1, 0]": 0}
    numbers = found(2), found(4), found(1)
    decided = time_beside_others(numbers[0], numbers[1:], OPTIONS, Progress(), 30.0)
    assert [each.measured_seconds for each in decided.searched.shards] == [1.5, 1.0, None]


def test_of_equals_the_unsplit_step_is_written(real):
    real.seconds = {"2 on [0, 1]": 1.0, "1 on [0, 0]": 1.005}
    assert written(found(2), found(1))[0] == "run of 1"


def test_a_split_step_is_compared_with_the_unsplit_one(real):
    real.seconds, whole = {"2 on [0, 1]": 1.0}, found(1)
    assert written(found(2), whole)[0] == "run of 2"
    assert real.unsplit is whole
    real.seconds = {"1 on [0, 1]": 1.0}
    assert written(found(2), whole)[0] == "run of 1"
    assert real.unsplit is None


def test_only_as_many_are_timed_as_there_is_time_for(real):
    whole, split, other = found(1, num_ops=500), found(2, num_ops=4000), found(4, num_ops=8000)
    real.seconds = {"2 on [0, 1]": 1.0}
    assert written(split, whole, other)[0] == "run of 2"
    assert real.asked == [["2 on [0, 1]", "1 on [0, 0]", "1 on [0, 1]"]]


def test_where_there_is_time_for_two_the_comparison_afterwards_decides_alone(real):
    whole, split = found(1, num_ops=3000), found(2, num_ops=6000)
    assert written(split, whole)[0] == "run of 2"
    assert real.asked == [] and real.unsplit is whole


def test_where_nothing_is_timed_first_data_parallelism_is_compared_if_it_is_close(real):
    whole = found(1, num_ops=3000)
    four = found(4, evenly=1.05, num_ops=9000)
    two = found(2, seconds=1.02, evenly=1.1, num_ops=6000)
    assert written(four, two, whole)[0] == "run of 2"
    assert real.asked == [] and real.timed == ["2 on [1, 0]"] and real.unsplit is whole
    assert written(found(4, num_ops=9000), whole)[0] == "run of 4"
    assert real.timed[-1] == "4 on [0, 1]"  # data parallelism takes 1.2 times as long


def test_without_other_numbers_nothing_is_timed_beside_it(real):
    assert written(found(2))[0] == "run of 2"
    assert real.asked == [] and real.timed == ["2 on [0, 1]"]


def test_what_could_not_be_timed_does_not_win(real):
    real.seconds = {"2 on [0, 1]": 0.0, "2 on [1, 0]": 0.0}
    assert written(found(2), found(1))[0] == "run of 1"
    real.seconds |= {"1 on [0, 0]": 0.0, "1 on [0, 1]": 0.0}
    assert written(found(2), found(1))[0] == "run of 1"
    assert real.timed[-1] == "1 on [0, 1]"
    real.seconds |= {"4 on [0, 1]": 0.0, "4 on [1, 0]": 0.0}
    assert written(found(2), found(4))[0] == "run of 2"


@pytest.mark.parametrize(("shards", "seconds_left"), [(1, 30.0), (2, 23.0)])
def test_only_a_split_step_leaves_time_to_the_proof_that_it_is_split_right(
    real, monkeypatch, shards, seconds_left
):
    monkeypatch.setattr("time.monotonic", lambda: 5.0)
    numbers = (found(1), found(2)) if shards == 1 else (found(2), found(1))
    real.seconds = {f"{shards} on [0, 1]": 0.5}
    time_beside_others(numbers[0], numbers[1:], OPTIONS, Progress(), 30.0, 7.0)
    assert real.timed == [f"{shards} on [0, 1]"]
    assert real.ends == [seconds_left]
