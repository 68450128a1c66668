"""--shards=auto writes a split step only where real runs say that it beats the unsplit one."""

from types import SimpleNamespace

import numpy as np
import pytest

from graphs.placement import Infeasible, Measurement
from tfplace.choosing import against_unsplit
from tfplace.choosing.against_unsplit import Found, is_faster, time_beside_unsplit
from tfplace.choosing.baselines import Candidate
from tfplace.choosing.choose import Choice
from tfplace.measurement.run_measurement import Timings
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.progress import Progress

OPTIONS = OptimizeOptions(ProblemOptions("model", cluster="workers:2"))
LOST = Infeasible("timeout", "no time was left")


def timed(seconds):
    return Timings(np.full(5, seconds), "tf.function", {}, interleaved=True)


def candidate(name, *devices):
    return Candidate(name, np.array(devices, np.int32), Measurement(1.0, {}, "simulated"))


def found(name):
    """A stand-in for a problem with a step of two ops; its graphs and runs are their names."""
    single, best = candidate("single", 0, 0), candidate("auto", 0, 1)
    prepared = SimpleNamespace(
        name=name,
        problem=None,
        cluster=SimpleNamespace(name="workers:2"),
        placed_run_graph=lambda placement: f"{name} on {placement.tolist()}",
        training_run=lambda: f"run of {name}",
    )
    searched = SimpleNamespace(
        baselines=[single], candidates=[single, best], fewer=[], unsplit=None
    )
    return Found(prepared, searched)


@pytest.fixture
def real(monkeypatch):
    """What real runs are said to take, and what the comparison afterwards says."""
    said = SimpleNamespace(split=1.0, unsplit=[2.0, 1.5], verdict="placed", asked=[])

    def measure(variants, run, cluster, limits):
        said.asked.append((variants, run))
        seconds = [said.split, *said.unsplit]
        return dict(zip(variants, map(timed, seconds), strict=False))

    def by_prediction(candidates, problem, unsplit):
        return Choice(candidates[-1], "placed", "")

    def compare(prepared, options, searched, choice, progress, seconds):
        choice = Choice(choice.candidate, said.verdict, prepared.name)
        return SimpleNamespace(prepared=prepared, choice=choice)

    monkeypatch.setattr(against_unsplit, "measure_variants", measure)
    monkeypatch.setattr(against_unsplit, "choose", by_prediction)
    monkeypatch.setattr(against_unsplit, "time_choice", compare)
    monkeypatch.setattr(against_unsplit, "has_finalists", lambda prepared, options: True)
    return said


def written():
    split, unsplit = found("split"), found("unsplit")
    decided = time_beside_unsplit(split, split.choice(), unsplit, OPTIONS, Progress(), 30.0)
    return decided.prepared.training_run(), decided.choice


def test_a_split_step_that_is_faster_than_both_unsplit_ones_is_written(real):
    assert written()[0] == "run of split"
    ((variants, runs),) = real.asked
    assert [*variants.values()] == ["split on [0, 1]", "unsplit on [0, 0]", "unsplit on [0, 1]"]
    assert [*runs.values()] == ["run of split", "run of unsplit", "run of unsplit"]


@pytest.mark.parametrize("unsplit", [[0.9, 1.5], [2.0, 0.9], [1.005, 2.0]])
def test_one_that_is_not_clearly_faster_is_not(real, unsplit):
    real.unsplit = unsplit
    run, choice = written()
    assert (run, choice.sentence) == ("run of unsplit", "unsplit")


def test_one_that_does_not_beat_its_own_single_device_leaves_the_unsplit_one_there(real):
    real.verdict = "kept_single"
    run, choice = written()
    assert run == "run of unsplit"
    assert (choice.verdict, choice.candidate.name) == ("kept_single", "single")


def test_without_an_unsplit_one_nothing_is_timed_beside_it(real):
    split = found("split")
    decided = time_beside_unsplit(split, split.choice(), None, OPTIONS, Progress())
    assert (decided.choice.sentence, real.asked) == ("split", [])


def test_what_could_not_be_timed_does_not_win_unless_nothing_could():
    assert is_faster(timed(1.0), [LOST])
    assert not is_faster(LOST, [timed(1.0), LOST])
    assert is_faster(LOST, [LOST, LOST])
