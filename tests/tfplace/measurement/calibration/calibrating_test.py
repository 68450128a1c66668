"""Calibration of real workers with as few steps as possible, and what it makes of figures."""

import json
import os
import select
import signal
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphs.cluster import Cluster
from graphs.clusters import named_clusters
from graphs.clusters.cluster_file import cluster_from_json, cluster_to_json
from graphs.clusters.discovery import find_cluster, tf_config_cluster
from graphs.errors import ClusterError
from tests.tfplace.measurement.calibration.fake_prober import FakeProber
from tfplace.cli import main
from tfplace.measurement.calibration import calibrating
from tfplace.measurement.calibration.calibrating import (
    SHORT,
    SURELY_BUSY,
    Figures,
    calibrate,
    calibrated_cluster,
    refused_where_busy,
    require_quiet,
    warnings_about,
)
from tfplace.measurement.calibration.device_figures import Contention, OpFigures, StepFigures
from tfplace.measurement.calibration.line_fit import LineFit
from tfplace.measurement.calibration.link_figures import BusyFigures, RuleChoice, link_figures
from tfplace.measurement.calibration.probe_graphs import (
    TransferProbe,
    op_chains,
    ping_pong,
    products_beside_transfers,
    products_on,
    step_probe,
    streams_on,
    transfers_at_once,
)
from tfplace.measurement.calibration.probing import Prober
from tfplace.measurement.measuring_process import MeasuringProcess
from tfplace.measurement.presence import is_present
from tfplace.measurement.training_run import (
    PrepareRequest,
    ReleaseRequest,
    StepLimits,
    TraceRequest,
)

FEW = StepLimits(warmup_steps=1, min_steps=3, max_steps=3, timeout_seconds=60.0)


@pytest.fixture(scope="module")
def workers() -> Iterator[tuple[MeasuringProcess, Prober, Cluster]]:
    cluster = find_cluster("workers:2")
    with MeasuringProcess(cluster) as process:
        yield process, Prober(process, cluster, FEW), cluster


def test_every_probe_runs_on_workers(workers) -> None:
    _, prober, cluster = workers
    here, there = cluster.device_names
    transfers = TransferProbe(here, there, num_bytes=1 << 16, count=3)
    probes = {
        "steps": step_probe([here, there], num_fetches=1),
        "ops": op_chains(there, length=3, count=2),
        "products": products_on([here, there], side=16, depth=2),
        "streams": streams_on([here, there], num_bytes=1 << 16, depth=3),
        "ping pong": ping_pong(here, there, num_bytes=1 << 16, num_hops=2),
        "at once": transfers_at_once([transfers, TransferProbe(there, here, 64, 2)]),
        "beside": products_beside_transfers(there, side=16, depth=9, transfers=transfers),
    }
    seconds = prober.time(probes, 0.0)
    assert {kind: len(rounds) for kind, rounds in seconds.items()} == dict.fromkeys(probes, 3)
    assert all((rounds > 0.0).all() for rounds in seconds.values())
    assert 0.0 <= prober.load.background_share <= 1.0


def test_no_transfer_of_a_probe_is_optimised_away(workers) -> None:
    process, _, cluster = workers
    here, there = cluster.device_names
    probe = ping_pong(here, there, 1 << 16, num_hops=4)
    graph = probe.graph_def.SerializeToString()
    process.request(PrepareRequest(0, graph, probe.run, through="session"), 60.0)
    traces = process.request(TraceRequest(0, 5), 60.0)
    for trace in traces:
        kinds = [kind for kind in trace.op_types if kind in ("ReadVariableOp", "Slice")]
        assert sorted(kinds) == ["ReadVariableOp"] * 4 + ["Slice"] * 4
    # There and back. TensorFlow doesn't wait until a worker logs transfers, so that a busy one may
    # miss those of a step; one that was optimised away is in none.
    assert max(trace.is_transfer.sum() for trace in traces) == 8
    process.request(ReleaseRequest(0), 60.0)


def test_a_worker_that_dies_is_one_sentence_and_leaves_nothing(workers, monkeypatch) -> None:
    process, prober, cluster = workers
    prober.time({"step": step_probe(cluster.device_names)}, 0.0)
    handles = [os.pidfd_open(pid) for pid in process.process_ids[1:]]
    request = process.request

    def prepared_then_lost(what, timeout_seconds):
        answer = request(what, timeout_seconds)
        if isinstance(what, PrepareRequest):
            signal.pidfd_send_signal(handles[-1], signal.SIGKILL)
        return answer

    monkeypatch.setattr(process, "request", prepared_then_lost)
    with pytest.raises(ClusterError, match=r"calibrating workers:2: a step on its .* \(crash\)"):
        prober.time({"step": step_probe(cluster.device_names)}, 0.0)
    for handle in handles:  # readable once the process has ended
        assert select.select([handle], [], [], 30)[0] == [handle]
        os.close(handle)


def test_the_command_on_this_host(tmp_path, capsys) -> None:
    path = tmp_path / "here.json"
    status = main(
        ["calibrate", f"--output={path}", "--budget_seconds=0", "--format=json", "--verbosity=-1"]
    )
    assert status == 0
    result = json.loads(capsys.readouterr().out)
    written = json.loads(path.read_text())
    assert result["cluster"] == written
    assert (written["origin"], written["name"]) == ("local", "local")
    cluster = find_cluster(str(path))
    assert is_present(cluster)
    assert cluster.device_names == find_cluster("local").device_names
    assert cluster.step_overhead_seconds == result["step"]["overhead_seconds"] > 0
    assert main(["calibrate", f"--output={path}"]) == 2
    assert "it exists already" in capsys.readouterr().err


@pytest.mark.parametrize("output", [[], ["--output=cluster.txt"]])
def test_an_output_is_needed(output, capsys) -> None:
    assert main(["calibrate", *output]) == 1
    assert "wanted FILE.json" in capsys.readouterr().err


def test_tasks_whose_server_does_not_run_can_not_be_calibrated() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        cluster = tf_config_cluster(json.dumps({"cluster": {"worker": [address]}}))
        with pytest.raises(ClusterError, match=f"tf_config: nothing answers at {address}"):
            calibrate(cluster, 1.0)


def test_hardware_that_is_not_here_can_not_be_calibrated() -> None:
    with pytest.raises(ClusterError, match="calibrating k80x2: its devices are not present"):
        calibrate(named_clusters.named("k80x2"), 0.0)


def test_figures_go_where_they_belong_and_come_back_from_a_file() -> None:
    cluster = find_cluster("workers:2")
    first, second = cluster.device_names
    there, back = (first, second), (second, first)
    ops = {
        first: OpFigures(2e-7, 1, 1e-3, 384, {1: 3e-3}, 5.13e10),
        second: OpFigures(3e-7, 2, 1e-3, 384, {1: 3e-3}, 4.69e10),
    }
    links = {
        there: link_figures({0: 3e-4, 1 << 20: 3e-4 + (1 << 20) / 2e9}),
        back: link_figures({0: 2e-4, 1 << 20: 2e-4 + (1 << 20) / 4e9}),
    }
    none, some = (
        BusyFigures(None, {}),
        BusyFigures(LineFit(3e-5, 1e-10, 0.0, 1.0), {64: 3e-5, 1 << 20: 3e-5 + (1 << 20) * 1e-10}),
    )
    figures = Figures(
        StepFigures(1e-3, 4e-4, [0.0, 6e-4], 0.05),
        ops,
        links,
        senders={there: some, back: none},
        receivers={there: none, back: some},
        contention=dict.fromkeys(cluster.device_names, Contention(0.25, 0.5)),
        rule=RuleChoice("half_duplex", {}),
    )
    calibrated = calibrated_cluster(cluster, figures)
    assert (calibrated.name, calibrated.origin, calibrated.communication) == (
        "workers:2",
        "workers:2",
        "half_duplex",
    )
    assert [d.slots for d in calibrated.devices] == [1, 2]
    assert [d.op_seconds for d in calibrated.devices] == [2e-7, 3e-7]
    assert [d.memory_slowdown for d in calibrated.devices] == [0.5, 0.5]
    assert [d.bandwidth_bytes_per_second for d in calibrated.devices] == [4.9e10, 9.8e10]
    assert calibrated.dispatch_seconds(np.array([0, 1]), 1) == pytest.approx(2e-3)
    np.testing.assert_allclose(calibrated.link_latency, [[0, 1.5e-4], [1e-4, 0]])
    np.testing.assert_allclose(calibrated.link_bytes_per_second, [[np.inf, 2e9], [4e9, np.inf]])
    np.testing.assert_array_equal(calibrated.transfer_work.sender_seconds, [[0, 3e-5], [3e-5, 0]])
    per_byte = calibrated.transfer_work.receiver_seconds_per_byte
    np.testing.assert_allclose(per_byte, [[0, 1e-10], [1e-10, 0]])
    again = cluster_from_json(json.loads(json.dumps(cluster_to_json(calibrated))))
    assert again.devices == calibrated.devices
    assert is_present(again)
    assert [device.address for device in again.devices] == ["", ""]  # started anew where needed


def test_on_a_busy_machine_what_others_bend_is_refused() -> None:
    cluster = find_cluster("workers:2")
    first, second = cluster.device_names
    there, back = (first, second), (second, first)
    link = link_figures({0: 3e-4, 1 << 20: 3e-4 + (1 << 20) / 2e9})
    busy = BusyFigures(LineFit(3e-5, 1e-10, 0.0, 1.0), {64: 3e-5, 1 << 20: 2e-4})
    figures = Figures(
        StepFigures(1e-3, 4e-4, [0.0, 6e-4], 0.05),
        dict.fromkeys(cluster.device_names, OpFigures(2e-7, 1, 1e-3, 384, {1: 3e-3}, 5e10)),
        dict.fromkeys((there, back), link),
        dict.fromkeys((there, back), busy),
        dict.fromkeys((there, back), busy),
        dict.fromkeys(cluster.device_names, Contention(0.25, 0.5)),
        RuleChoice("half_duplex", {}),
    )
    assert refused_where_busy(figures, 0.05) is figures
    assert refused_where_busy(figures, None) is figures
    used = refused_where_busy(figures, 0.15)
    assert used.refused[back] == "other programs used 15% of this machine's CPU time"
    calibrated = calibrated_cluster(cluster, used)
    assert calibrated.transfer_work is None
    assert [d.memory_slowdown for d in calibrated.devices] == [0.0, 0.0]
    np.testing.assert_array_equal(calibrated.link_latency, cluster.link_latency)
    assert calibrated.step_overhead_seconds == 1e-3
    (said,) = warnings_about(0.15, 0.05, {}, {})
    assert "stay as they were assumed" in said


def test_a_short_calibration_is_given_up_where_others_use_the_machine() -> None:
    cluster = find_cluster("workers:2")
    require_quiet(cluster, None)
    require_quiet(cluster, 0.09)
    require_quiet(cluster, 0.19, SURELY_BUSY)
    with pytest.raises(ClusterError, match="other programs used 15% of this machine's CPU time"):
        require_quiet(cluster, 0.15)
    prober: Any = FakeProber(lambda *key: 1e-3)
    prober.load = SimpleNamespace(background_share=0.3)
    with pytest.raises(ClusterError, match="used 30%"):
        calibrating._measured(cluster, 1.0, prober, lambda sentence: None, SHORT)


def test_a_busy_machine_is_seen_before_any_process_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calibrating, "share_of_others", lambda seconds: 0.4)
    monkeypatch.setattr(calibrating, "MeasuringProcess", None)  # would fail
    with pytest.raises(ClusterError, match="used 40%"):
        calibrating.calibrate(find_cluster("workers:2"), 1.0, effort=SHORT)


def test_doubtful_figures_are_said_to_be() -> None:
    straight = link_figures({0: 1e-3, 1000: 2e-3, 2000: 3e-3})
    crooked = link_figures({0: 1e-3, 1000: 9e-3, 2000: 2e-3, 3000: 9e-3, 4000: 1e-3})
    assert warnings_about(0.02, 0.05, {("a", "b"): straight}) == []
    warnings = warnings_about(0.5, 0.4, {("a", "b"): crooked})
    assert [sentence.split(":")[0].split(" by ")[0] for sentence in warnings] == [
        "other processes used 50% of this machine's CPU time",
        "equal steps differ",
        "the link from a to b is no straight line",
    ]
