"""What a first round teaches before predictions are judged, on a machine that is made up."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphs.cluster import TransferWork
from graphs.problem import Infeasible
from tests.builders import Machine
from tests.tfplace.choosing.real_runs.machines import lstm, placements_of, theta_of
from tfplace.choosing.forward_model import ForwardModel
from tfplace.fidelity import first_round
from tfplace.fidelity.first_round import known_machine
from tfplace.measurement.run_measurement import Timings
from tfplace.preparing.options import ProblemOptions
from tfplace.search.instance import Instance

MODEL = ForwardModel(lstm())
TRUTH = theta_of(MODEL, {"link_latency": 8.0, "link_bytes_per_second": 0.2})


@dataclasses.dataclass(frozen=True)
class _Prepared:
    cluster: Any
    problem: Any
    instance: Any
    flat: Any
    is_present: bool = True


def _prepared() -> Any:
    given = np.zeros(MODEL.problem.num_ops, np.int32)
    cluster = Machine(2, types=["CPU", "CPU"]).cluster()
    instance = Instance(MODEL.problem, given)
    return _Prepared(cluster, MODEL.problem, instance, SimpleNamespace(fetches=["train"]))


def _measure(placements: Any) -> list[Timings]:
    seconds = MODEL.seconds(TRUTH, np.array(placements))
    return [Timings(np.full(5, each), "tf.function", {}, True) for each in seconds]


def test_the_machine_is_known_before_it_is_judged() -> None:
    known = known_machine(_prepared(), 0, lambda sentence: None, _measure)
    value, low, high = known.corrected["link_latency"]
    assert low < 8.0 < high and value > 4.0
    others = placements_of(MODEL.problem, 20, seed=9)
    truth = MODEL.seconds(TRUTH, others)
    error = np.abs(ForwardModel(known.prepared.problem).seconds(TRUTH * 0, others) / truth - 1.0)
    assert np.median(error) < 0.05
    assert known.prepared.cluster.taught == known.corrected


def test_a_calibrated_machine_is_known_already() -> None:
    prepared = _prepared()
    cluster = dataclasses.replace(prepared.cluster, transfer_work=TransferWork.none(2))
    prepared = dataclasses.replace(prepared, cluster=cluster)
    assert known_machine(prepared, 0, lambda sentence: None).prepared is prepared
    measured = known_machine(prepared, 0, lambda sentence: None, _measure, is_calibrated=False)
    assert measured.corrected["link_latency"][0] > 3.0


@pytest.mark.parametrize(("cluster", "is_kept"), [("workers:2", True), ("mine.json", False)])
def test_the_machine_is_known_and_kept_as_optimize_does(
    cluster: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepared = dataclasses.replace(_prepared(), is_present=True)
    if cluster == "mine.json":
        calibrated = dataclasses.replace(prepared.cluster, transfer_work=TransferWork.none(2))
        prepared = dataclasses.replace(prepared, cluster=calibrated)
    asked = ProblemOptions("model", cluster=cluster)
    used = dataclasses.replace(asked, cluster="kept.json")
    kept: list[Any] = []
    stand_ins = {
        "find_cluster": lambda name: prepared.cluster,
        "require_present": lambda *arguments: None,
        "on_known_machine": lambda options, scratch, tell: used if is_kept else options,
        "prepare": lambda options: prepared if options.cluster.endswith(".json") else None,
        "with_order": lambda prepared, order: prepared,
        "measured_steps": lambda prepared, chosen, limits, tell: _measure(chosen),
        "keep_what_was_taught": lambda *arguments: kept.append(arguments),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(first_round, name, stand_in)
    known = first_round.prepared_as_known(asked, tmp_path, 0, lambda sentence: None)
    assert kept == ([(asked, used, tmp_path, known.corrected)] if is_kept else [])
    assert bool(known.corrected) == is_kept


def test_where_nothing_runs_the_machine_is_as_taken() -> None:
    prepared = _prepared()
    known = known_machine(
        prepared,
        0,
        lambda sentence: None,
        lambda placements: [Infeasible("crash", "it died")] * len(placements),
    )
    assert (known.prepared, known.corrected) == (prepared, {})
