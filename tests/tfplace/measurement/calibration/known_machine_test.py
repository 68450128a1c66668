"""What is known of a machine is kept, checked, measured again, or refused; nothing runs here."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphs.cluster import Cluster, TransferWork
from graphs.clusters.cluster_file import cluster_to_json, read_cluster
from graphs.clusters.discovery import find_cluster
from graphs.errors import ClusterError
from tests.tfplace.measurement.calibration.fake_prober import FakeProber
from tfplace.choosing.budget import search_beside
from tfplace.measurement.calibration import known_machine as known
from tfplace.measurement.calibration.calibrating import FULL, SHORT
from tfplace.measurement.calibration.link_figures import link_figures
from tfplace.measurement.calibration.trusted_links import TrustedLinks
from tfplace.optimizing import with_known_machine
from tfplace.preparing.on_known_machine import FOLDER, keep_what_was_taught, on_known_machine
from tfplace.preparing.options import OptimizeOptions, ProblemOptions
from tfplace.progress import Phases, Progress

CLUSTER = find_cluster("workers:2")
FIRST, SECOND = CLUSTER.device_names
LATENCY, RATE = 1e-4, 3e9


def _measured(cluster: Cluster, work: bool = True) -> Cluster:
    apart = 1.0 - np.eye(2)
    return dataclasses.replace(
        cluster,
        origin=cluster.name,
        link_latency=LATENCY * apart,
        link_bytes_per_second=np.where(apart == 1.0, RATE, np.inf),
        step_overhead_seconds=1e-3,
        transfer_work=TransferWork(*(scale * apart for scale in (5e-5, 3e-10, 6e-5, 2e-10)))
        if work
        else None,
    )


def _calibration(cluster: Cluster, refused: Any = (), work: bool = True) -> Any:
    link = link_figures({0: 2e-4, 1 << 20: 2e-4 + (1 << 20) / RATE})
    return SimpleNamespace(
        cluster=_measured(cluster, work),
        links={(FIRST, SECOND): link, (SECOND, FIRST): link},
        refused=dict.fromkeys(refused, "no line fits"),
    )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """How often it was calibrated; what that gives, and how slow its links are now."""
    made = SimpleNamespace(calibrations=0, refused=(), work=True, slower=1.0)

    def calibrate(cluster: Cluster, *others: Any, effort: Any) -> Any:
        made.calibrations += 1
        assert effort is SHORT
        return _calibration(cluster, made.refused, made.work)

    def seconds(hops: int) -> float:
        return 1e-3 + hops * made.slower * (2 * LATENCY + known.PROBE_BYTES / RATE)

    class Process:
        def __init__(self, *others: Any, **limits: Any) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    class Prober(FakeProber):
        def __init__(self, *others: Any) -> None:
            super().__init__(seconds)

        def time(self, probes: Any, budget_seconds: float) -> Any:
            return {hops: seconds(hops) * np.ones(5) for hops in probes}

    monkeypatch.setattr(known, "calibrate", calibrate)
    monkeypatch.setattr(known, "MeasuringProcess", Process)
    monkeypatch.setattr(known, "Prober", Prober)
    return made


def test_a_machine_is_measured_once_and_then_checked(machine: Any, tmp_path: Path) -> None:
    told: list[str] = []
    file = known.known_machine(CLUSTER, tmp_path, told.append)
    assert file is not None
    read = read_cluster(str(file))
    assert (read.name, read.origin, read.transfer_work is not None) == (
        "workers:2",
        "workers:2",
        True,
    )
    assert known.known_machine(CLUSTER, tmp_path, told.append) == file
    assert machine.calibrations == 1
    assert [sentence.split()[0] for sentence in told] == ["getting", "checking"]


def test_what_no_longer_fits_is_forgotten(machine: Any, tmp_path: Path) -> None:
    file = known.known_machine(CLUSTER, tmp_path, lambda sentence: None)
    machine.slower = 5.0
    assert known.known_machine(CLUSTER, tmp_path, lambda sentence: None) == file
    assert machine.calibrations == 2
    machine.refused = [(FIRST, SECOND), (SECOND, FIRST)]
    assumed = known.known_machine(CLUSTER, tmp_path, lambda sentence: None)
    assert list(tmp_path.iterdir()) == [assumed] and assumed == known.assumed_file(
        CLUSTER, tmp_path
    )
    assert read_cluster(str(assumed)).transfer_work is None


def test_what_could_not_be_measured_is_tried_again_after_a_while(
    machine: Any, tmp_path: Path
) -> None:
    machine.refused = [(FIRST, SECOND), (SECOND, FIRST)]
    assumed = known.known_machine(CLUSTER, tmp_path, lambda sentence: None)
    assert assumed is not None
    known.keep_taught(CLUSTER, assumed, {})
    assert known.known_machine(CLUSTER, tmp_path, lambda sentence: None) == assumed
    assert machine.calibrations == 1
    os.utime(assumed, (0.0, 0.0))
    known.keep_taught(CLUSTER, assumed, {})  # which tells nothing of when it was tried
    assert known.known_machine(CLUSTER, tmp_path, lambda sentence: None) == assumed
    assert machine.calibrations == 2


@pytest.mark.parametrize(
    ("refused", "work", "is_used"),
    [
        ([], True, True),
        ([(FIRST, SECOND)], True, True),  # the other way's figures do for both
        ([(FIRST, SECOND), (SECOND, FIRST)], True, False),
        ([], False, False),
    ],
)
def test_what_noise_has_spoilt_is_said_and_not_used(
    refused: Any, work: bool, is_used: bool, machine: Any, tmp_path: Path, caplog: Any
) -> None:
    machine.refused, machine.work = refused, work
    with caplog.at_level(logging.WARNING, logger="tfplace"):
        file = known.known_machine(CLUSTER, tmp_path, lambda sentence: None)
    assert (file is not None and "assumed" not in file.name) == is_used
    assert ("stays as it was assumed" in caplog.text) != is_used


def test_a_damaged_file_or_a_dead_worker_stops_nobody(
    machine: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    file = known.known_machine(CLUSTER, tmp_path, lambda sentence: None)
    assert file is not None
    file.write_text("{")
    assert known.known_machine(CLUSTER, tmp_path, lambda sentence: None) == file
    assert json.loads(file.read_text())["name"] == "workers:2"

    def dies(*others: Any, **more: Any) -> None:
        raise ClusterError("a worker died")

    monkeypatch.setattr(known, "calibrate", dies)
    assert known.known_machine(CLUSTER, tmp_path / "other", lambda sentence: None) is None


def test_only_several_devices_that_are_here_are_measured(machine: Any, tmp_path: Path) -> None:
    def cluster_of(spec: str, cache: Path | None = tmp_path) -> str:
        options = ProblemOptions("model", cluster=spec, cost_cache=cache and str(cache))
        return on_known_machine(options, tmp_path / "scratch", lambda sentence: None).cluster

    assert [cluster_of(spec) for spec in ("k80x2", "workers:1")] == ["k80x2", "workers:1"]
    assert machine.calibrations == 0
    file = cluster_of("workers:2")
    assert Path(file).parent == tmp_path / FOLDER
    assert cluster_of(file) == file
    assert Path(cluster_of("workers:2", None)).parent == tmp_path / "scratch"


@pytest.mark.parametrize("refused", [[], [(FIRST, SECOND), (SECOND, FIRST)]])
def test_what_real_runs_taught_is_kept_with_the_machine_and_goes_with_it(
    refused: Any, machine: Any, tmp_path: Path
) -> None:
    def used() -> ProblemOptions:
        return on_known_machine(asked, tmp_path, lambda sentence: None)

    machine.refused = refused
    asked = ProblemOptions("model", cluster="workers:2", cost_cache=str(tmp_path))
    taught = {"link_latency": (2.0, 1.5, 3.0), "step_start_seconds": (1e-3, 0.0, 2e-3)}
    keep_what_was_taught(asked, used(), tmp_path, taught)
    kept = read_cluster(used().cluster)
    assert (kept.taught, bool(kept.origin)) == (taught, not refused)
    zeros = np.zeros(1, np.int32)
    unknown = dataclasses.replace(kept, taught={})
    assert kept.dispatch_seconds(zeros) == unknown.dispatch_seconds(zeros) + 1e-3
    machine.slower, machine.refused = 5.0, []
    os.utime(used().cluster, (0.0, 0.0))
    assert not read_cluster(used().cluster).taught
    assert len(list((tmp_path / FOLDER).iterdir())) == 1


@pytest.mark.parametrize("refused", [[], [(FIRST, SECOND), (SECOND, FIRST)]])
def test_a_search_that_goes_on_finds_the_machine_as_it_was(
    refused: Any, machine: Any, tmp_path: Path
) -> None:
    def problem_of(checkpoint_dir: str | None) -> ProblemOptions:
        options = OptimizeOptions(asked, checkpoint_dir=checkpoint_dir)
        compiling: Any = SimpleNamespace(wait=lambda *others: None)
        scratch = tmp_path / "scratch"
        return with_known_machine(options, Progress(), Phases(), compiling, scratch).problem

    machine.refused = refused
    asked = ProblemOptions("model", cluster="workers:2", cost_cache=str(tmp_path))
    before = find_cluster(problem_of("search").cluster)
    keep_what_was_taught(asked, problem_of(None), tmp_path, {"link_latency": (2.0, 1.5, 3.0)})
    assert find_cluster(problem_of(None).cluster).taught
    after = find_cluster(problem_of("search").cluster)
    assert cluster_to_json(after) == cluster_to_json(before)


def test_what_a_user_calibrated_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(cluster_to_json(_measured(CLUSTER))))
    before, asked = file.read_bytes(), ProblemOptions("model", cluster=str(file))
    keep_what_was_taught(asked, asked, tmp_path, {"link_latency": (2.0, 1.5, 3.0)})
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "cluster", "is_measured"),
    [
        ({}, "workers:2", True),
        ({"budget_seconds": 10.0}, "workers:2", False),
        ({"evaluator": "simulate"}, "workers:2", False),
        ({}, "k80x2", False),
    ],
)
def test_only_where_the_machine_is_measured_compiling_is_waited_for(
    changed: Any, cluster: str, is_measured: bool, machine: Any, tmp_path: Path
) -> None:
    waited: list[object] = []
    compiling: Any = SimpleNamespace(wait=lambda *others: waited.append(others))
    problem = ProblemOptions("model", cluster=cluster, cost_cache=str(tmp_path))
    options = OptimizeOptions(problem, **changed)
    found = with_known_machine(options, Progress(), Phases(), compiling, tmp_path)
    assert (found != options, bool(waited), machine.calibrations) == (
        is_measured,
        is_measured,
        int(is_measured),
    )


@pytest.mark.parametrize(("knowing", "search"), [(0.0, 60.0), (6.0, 48.0), (16.0, 30.0)])
def test_what_measuring_the_machine_takes_comes_off_the_first_search(
    knowing: float, search: float
) -> None:
    options = OptimizeOptions(ProblemOptions("model"), budget_seconds=60.0)
    assert search_beside(options, knowing).budget_seconds == search


@pytest.mark.parametrize(
    ("left", "few", "search"),
    [
        (math.inf, math.inf, 48.0),
        (28.0, 40.0, 28.0),
        (18.0, 40.0, 19.8),
        (1.0, 13.0, 13.0),
        (-5.0, 2.0, 12.0),
        (-20.0, 10.0, 48.0),
    ],
)
def test_so_does_what_the_comparison_with_one_device_needs_where_there_is_time_for_it(
    left: float, few: float, search: float
) -> None:
    options = OptimizeOptions(ProblemOptions("model"), budget_seconds=60.0)
    assert search_beside(options, 6.0, left, few).budget_seconds == pytest.approx(search)


def test_a_short_calibration_measures_one_of_a_kind() -> None:
    four = find_cluster("workers:4")
    names = four.device_names
    pairs = [(a, b) for a in names for b in names if a != b]
    assert set(SHORT.devices(four).values()) == {names[0]}
    like = SHORT.links(four, pairs)
    assert set(like.values()) == {(names[0], names[1])}  # equal ends: there is like back
    assert len(set(SHORT.busy_links(four, pairs).values())) == 1
    assert dict(FULL.links(four, pairs)) == {pair: pair for pair in pairs}
    bad = TrustedLinks({names[:2]: link_figures({0: 1.0, 9: 2.0})}, {names[:2]: "spoilt"})
    spread = bad.for_all({names[:2]: names[:2], names[2:]: names[:2]})
    assert list(spread.refused) == [names[:2], names[2:]]
