"""Workers that are killed, steps that hang, others' load: what a measurement makes of them."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from graphs.problem import Infeasible
from tests.tfplace.measurement.measure_graphs import (
    INPUT,
    WORKERS,
    cluster_of,
    loop,
    towers,
    towers_run,
)
from tfplace.measurement.machine_load import CpuClocks, LoadMeter, read_clocks
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.training_run import PreparedRun, PrepareRequest, StepRequest, TrainingRun


@pytest.fixture(scope="module")
def process() -> Iterator[MeasuringProcess]:
    with MeasuringProcess(cluster_of(WORKERS)) as running:
        yield running


def _prepare(process: MeasuringProcess, graph: Any, run: TrainingRun) -> Any:
    return process.request(PrepareRequest(0, graph.SerializeToString(), run), 100)


def _are_gone(process_ids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in process_ids)


def test_a_worker_killed_between_steps_is_a_crash_that_was_a_kill(
    process: MeasuringProcess,
) -> None:
    assert isinstance(_prepare(process, towers(WORKERS), towers_run()), PreparedRun)
    _, child, *workers = process.process_ids
    starts = process.num_starts
    os.kill(workers[1], signal.SIGKILL)
    answer = process.request(StepRequest(0, 1), 100)
    assert isinstance(answer, Infeasible)
    assert answer.reason == "crash"
    assert "worker 1 ended, killed by SIGKILL" in answer.message
    assert process.was_killed
    assert not process.alive
    assert _are_gone([child, *workers])
    unprepared = process.request(StepRequest(0, 1), 100)
    assert isinstance(unprepared, Infeasible) and unprepared.reason == "crash"
    assert process.num_starts == starts  # nothing is prepared any more: no reason to begin anew


def test_a_worker_killed_amid_a_step_is_a_crash_and_the_next_run_gets_new_ones(
    process: MeasuringProcess,
) -> None:
    """The step never ends by itself."""
    assert isinstance(_prepare(process, towers(WORKERS), towers_run()), PreparedRun)
    _, _, *workers = process.process_ids
    threading.Thread(target=_kill_when_busy, args=(workers[1],)).start()
    hanging = loop(WORKERS[1], iterations=2**62)
    answer = _prepare(process, hanging, TrainingRun({"x": INPUT}, ["result:0"]))
    assert isinstance(answer, Infeasible)
    assert (answer.reason, process.was_killed) == ("crash", True)
    assert _are_gone(workers)


def _kill_when_busy(worker: int) -> None:
    """Kills a process once it has computed for a tenth of a second more than now."""
    before = read_clocks([worker]).own_seconds
    while read_clocks([worker]).own_seconds <= before + 0.1:
        pass
    os.kill(worker, signal.SIGKILL)


def test_clocks_are_the_machines_and_those_of_our_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = psutil.cpu_times()._replace(
        user=100.0,
        nice=20.0,
        system=30.0,
        idle=400.0,
        iowait=50.0,
        irq=0.0,
        softirq=10.0,
        steal=5.0,
        guest=90.0,
        guest_nice=7.0,
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda: machine)
    assert read_clocks([]) == CpuClocks(615.0, 160.0, 0.0)
    own = sum(os.times()[:2])
    clocks = read_clocks([os.getpid(), 2**22 + 1])  # no process has the second number
    assert own - 0.02 <= clocks.own_seconds <= sum(os.times()[:2])


def test_background_is_what_others_took_while_our_processes_stayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = iter(
        [
            CpuClocks(100.0, 50.0, 10.0),
            CpuClocks(110.0, 58.0, 15.0),  # 3 of 10 seconds went to others
            CpuClocks(200.0, 140.0, 0.0),  # other processes of ours: not counted
            CpuClocks(210.0, 145.0, 4.0),  # 1 of 10
        ]
    )
    monkeypatch.setattr("tfplace.measurement.machine_load.read_clocks", lambda _: next(readings))
    meter = LoadMeter()
    assert meter.background_share is None
    for process_ids in ([1, 2], [1, 2], [1, 3], [1, 3]):
        meter.read(process_ids)
    np.testing.assert_allclose(meter.background_share or 0.0, 0.2)
