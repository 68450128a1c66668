"""Devices that are tried: those of two workers for real, and what is said of faults."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from typing import Any

import numpy as np
import pytest

from graphs.clusters.discovery import find_cluster
from graphs.errors import ClusterError
from graphs.problem import Infeasible
from tfplace.measurement.calibration import trial
from tfplace.measurement.calibration.trial import DeviceTrial, LinkTrial, Trial, try_devices
from tfplace.measurement.measuring_process import RunFailedError
from tfplace.measurement.step_stats import StepTrace
from tfplace.measurement.training_run import PrepareRequest, ReachRequest, TraceRequest
from tfplace.report.device_check import trial_sentence

WORKERS = find_cluster("workers:2")
FIRST, SECOND = WORKERS.device_names


def test_two_workers_run_hold_their_limits_and_reach_each_other() -> None:
    tried = try_devices(WORKERS)
    assert tried.works
    assert [each.device for each in tried.devices] == [FIRST, SECOND]
    assert all(each.asked_bytes > WORKERS.devices[0].memory_bytes for each in tried.devices)
    assert {(each.source, each.target) for each in tried.links} == {
        (FIRST, SECOND),
        (SECOND, FIRST),
    }
    assert all(each.bytes_per_second and each.bytes_per_second > 1e6 for each in tried.links)
    assert trial_sentence(tried) == "2 CPUs work"


def test_a_cluster_of_the_catalogue_is_not_here() -> None:
    with pytest.raises(ClusterError, match="describes hardware by its type"):
        try_devices(find_cluster("k80x2"))


class _Process:
    """Answers as a process whose devices fail in one way.

    Args:
      fault: {device: what it does wrong}.
    """

    def __init__(self, fault: dict[str, str]) -> None:
        self.fault, self.device, self.has_failed = fault, "", False

    def __call__(self, cluster: Any, *rest: Any) -> Any:
        return contextlib.nullcontext(self)

    def ask(self, request: Any, limits: Any) -> Any:
        if isinstance(request, TraceRequest):
            ran = SECOND if self.fault.get(self.device) == "elsewhere" else self.device
            return [StepTrace(["MatMul"], ["MatMul"], [ran], np.zeros(1), np.ones(1), np.zeros(1))]
        assert isinstance(request, PrepareRequest)
        self.device = FIRST if b"task:0" in request.graph_def else SECOND
        fault = self.fault.get(self.device, "")
        if b"Empty" in request.graph_def:
            self.has_failed = True
            if fault == "gives too much":
                return None
            reason = "crash" if fault == "crashes without memory" else "memory"
            raise RunFailedError(Infeasible(reason, "OOM when allocating"))
        if fault == "is not there":
            text = f"x was explicitly assigned to {FIRST} but available devices are [ CPU:0 ]. Make"
            raise RunFailedError(Infeasible("no_kernel", text))
        if fault == "runs nothing" or (fault == "is gone afterwards" and self.has_failed):
            raise RunFailedError(Infeasible("error", "Unknown device"))
        return None

    def request(self, request: Any, seconds: float) -> Any:
        if isinstance(request, ReachRequest):
            return [request.task or FIRST, SECOND]
        return Infeasible("error", "what is sent does not arrive")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("runs nothing", f"{FIRST} does not work: error: Unknown device"),
        ("elsewhere", f"{FIRST} does not work: its ops ran on {SECOND}"),
        ("gives too much", f"{FIRST} does not hold its memory limit: it gave out "),
        ("crashes without memory", f"{FIRST} does not hold its memory limit: crash: OOM"),
        ("is gone afterwards", f"{FIRST} does not hold its memory limit: after it ran out"),
        ("", f"nothing goes from {FIRST} to {SECOND}: error: what is sent does not arrive"),
        (
            "is not there",
            f"{FIRST} does not work: TensorFlow has no such device here; it has CPU:0",
        ),
    ],
)
def test_each_fault_is_named(monkeypatch: Any, fault: str, sentence: str) -> None:
    monkeypatch.setattr(trial, "MeasuringProcess", _Process({FIRST: fault}))
    tried = try_devices(WORKERS)
    assert not tried.works
    assert trial_sentence(tried).startswith(sentence)
    others = [each for each in tried.devices if each.device == SECOND]
    assert not any(each.failure or each.limit_failure for each in others)


def test_an_address_where_nothing_answers_is_named(monkeypatch: Any) -> None:
    with socket.socket() as closed, socket.socket() as listening:
        closed.bind(("127.0.0.1", 0))
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        ports = [each.getsockname()[1] for each in (closed, listening)]
        devices = [
            dataclasses.replace(device, address=f"127.0.0.1:{port}")
            for device, port in zip(WORKERS.devices, ports, strict=True)
        ]
        monkeypatch.setattr(trial, "MeasuringProcess", _Process({}))
        tried = try_devices(dataclasses.replace(WORKERS, devices=devices))
    expected = f"{FIRST} does not work: nothing answers at 127.0.0.1:{ports[0]}"
    assert trial_sentence(tried).startswith(expected)
    assert tried.devices[1] == DeviceTrial(SECOND, "")


@pytest.mark.parametrize(
    ("peers", "access"),
    [({}, "no"), ({"0": ["1"], "1": ["0"]}, "yes"), ({"0": ["1"]}, "1 of 2 pairs")],
)
def test_gpus_say_whether_they_read_each_other(peers: Any, access: str) -> None:
    names = ("/device:CPU:0", "/device:GPU:0", "/device:GPU:1")
    devices = [DeviceTrial(name, "", 1 << 30) for name in names]
    links = [LinkTrial(names[1], names[2], 1e10, 1e-5)]
    sentence = trial_sentence(Trial(devices, links, peers))
    assert sentence == f"1 CPU and 2 GPUs work; peer access between GPUs: {access}"
