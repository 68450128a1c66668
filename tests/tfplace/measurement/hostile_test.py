"""Workers that are killed, steps that hang, others' load: what a measurement makes of them."""

import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphs.placement import Infeasible
from tests.tfplace.measurement.measure_graphs import (
    INPUT,
    WORKERS,
    cluster_of,
    loop,
    towers,
    towers_run,
)
from tfplace.measurement import measuring_child
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
    clocks = read_clocks([worker])
    while clocks is not None:
        now = read_clocks([worker])
        if now is None or now.own_seconds > clocks.own_seconds + 0.1:
            break
    os.kill(worker, signal.SIGKILL)


def test_a_child_ends_with_its_pipe_also_amid_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    ours, theirs = Pipe()
    assert isinstance(theirs, Connection)
    ours.send("not read yet")
    watch = threading.Thread(target=measuring_child._end_with, args=(theirs.fileno(),))
    watch.start()
    assert ended == []
    ours.close()
    watch.join(30)
    assert ended == [0]


def _proc(folder: Path, ticks: str, own_ticks: int) -> Path:
    folder.mkdir()
    (folder / "stat").write_text(f"cpu  {ticks}\ncpu0 1 2 3\n")
    (folder / "7").mkdir()
    (folder / "7" / "stat").write_text(f"7 (a (b) c) S 1 {'0 ' * 9}{own_ticks} 0 0 0\n")
    return folder


def test_clocks_are_read_in_seconds(tmp_path: Path) -> None:
    proc = _proc(tmp_path / "proc", "100 20 30 400 50 0 10 5 90 0", own_ticks=60)
    tick = 1.0 / os.sysconf("SC_CLK_TCK")
    clocks = read_clocks([7, 8], proc)
    assert clocks is not None
    wanted = CpuClocks(615 * tick, 165 * tick, 60 * tick)
    np.testing.assert_allclose(
        [clocks.all_seconds, clocks.busy_seconds, clocks.own_seconds],
        [wanted.all_seconds, wanted.busy_seconds, wanted.own_seconds],
    )
    assert read_clocks([7], tmp_path / "absent") is None


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
