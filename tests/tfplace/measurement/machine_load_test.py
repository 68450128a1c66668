"""What others use of the machine, told from what our own children do."""

import subprocess
import sys

import pytest

from tfplace.measurement import machine_load
from tfplace.measurement.machine_load import CpuClocks, share_of_others


@pytest.mark.parametrize(("own", "looks"), [([1.0, 1.0, 0.0], 3), ([0.0], 1), ([1.0] * 99, 24)])
def test_it_looks_again_while_our_children_work(monkeypatch, own, looks):
    slept, clock = [], [0.0, 0.0]
    used = iter(own)

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += 2.0 * seconds
        clock[1] += next(used) * seconds

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr(
        machine_load, "read_clocks", lambda ours: CpuClocks(clock[0], clock[1] + 0.25, clock[1])
    )
    assert share_of_others(0.5) == pytest.approx(0.0)
    assert len(slept) == looks


def test_children_are_ours(monkeypatch):
    asked = []
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(
        machine_load, "read_clocks", lambda ours: asked.append(ours) or CpuClocks(1.0, 0.0, 0.0)
    )
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        share_of_others(0.0)
        child.stdin.close()
    assert all(child.pid in ours for ours in asked)
