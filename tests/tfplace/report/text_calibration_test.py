"""What `tfplace calibrate` prints of a made-up calibration, and its JSON."""

import dataclasses
import json

import numpy as np

from graphs.cluster import TransferWork
from graphs.clusters.cluster_file import cluster_to_json
from tests.builders import Machine
from tfplace.measurement.calibration.calibrating import Calibration
from tfplace.measurement.calibration.device_figures import Contention, OpFigures, StepFigures
from tfplace.measurement.calibration.line_fit import LineFit
from tfplace.measurement.calibration.link_figures import BusyFigures, LinkFigures, RuleChoice
from tfplace.report.text import console
from tfplace.report.text_calibration import calibration_to_json, print_calibration

CPU, GPU = "/device:CPU:0", "/device:GPU:0"


def calibration():
    """A CPU and a GPU; what transfers take is known of one end of one link."""
    cluster = Machine(2, latency=1e-4, bandwidth=2e9).cluster()
    devices = [
        dataclasses.replace(device, op_seconds=seconds, step_seconds=2 * seconds, slots=4)
        for device, seconds in zip(cluster.devices, (1e-5, 2e-5), strict=True)
    ]
    work = TransferWork.none(2)
    work.sender_seconds[0, 1], work.sender_seconds_per_byte[0, 1] = 35e-6, 0.5e-9
    link = LinkFigures(2e9, 1e-4, LineFit(1e-4, 5e-10, 0.04, 0.9876), {1: 1e-4})
    seen, unseen = BusyFigures(LineFit(35e-6, 5e-10, 0.1, 1.0), {1: 1e-5}), BusyFigures(None, {})
    pairs = ((CPU, GPU), (GPU, CPU))
    return Calibration(
        cluster=dataclasses.replace(
            cluster,
            devices=devices,
            transfer_work=work,
            origin="local",
            step_overhead_seconds=3e-4,
            fetch_seconds=5e-6,
        ),
        steps=StepFigures(3e-4, 5e-6, (2e-5, 4e-5), 0.05),
        ops={
            CPU: OpFigures(1e-5, 4, 1e-3, 256, {1: 1e-3}, 8.25e9),
            GPU: OpFigures(2e-5, 4, 1e-3, 256, {1: 1e-3}, 0.0),
        },
        links=dict.fromkeys(pairs, link),
        senders=dict(zip(pairs, (seen, unseen), strict=True)),
        receivers=dict.fromkeys(pairs, unseen),
        contention={CPU: Contention(0.25, 0.5)},
        rule=RuleChoice("duplex", {"duplex": 0.02, "sender": 0.3}),
        background_share=None,
        warnings=["the machine was busy"],
        seconds=61.7,
    )


def test_the_text(capsys):
    print_calibration(calibration(), "two.json", console())
    expected = """\
cluster   local, measured in 62 s
step      300 µs of dispatch, and 5 µs for each fetched tensor
device                 an op  in a step  ops at once
0       /device:CPU:0  10 µs      20 µs            4
1       /device:GPU:0  20 µs      40 µs            4
memory    an op streams 8.2 GB/s on a CPU that works alone
at once   while all compute, products take 25 % longer, streams 50 %
link    latency    rate  fit is off by     R2
0 -> 1   100 µs  2 GB/s            4 %  0.988
1 -> 0   100 µs  2 GB/s            4 %  0.988
a transfer takes     of its sender  off by  of its receiver  off by
0 -> 1            35 µs + 0.5 ns/B    10 %                -
1 -> 0                           -                        -
channels  duplex; transfers at once miss each rule by: duplex 2 %, sender 30 %
warning   the machine was busy
written   two.json
use it    tfplace optimize MODEL --cluster=two.json
"""
    assert capsys.readouterr().out == expected


def test_what_was_not_measured_is_not_printed(capsys):
    whole = calibration()
    alone = dataclasses.replace(
        whole,
        ops={CPU: dataclasses.replace(whole.ops[CPU], stream_bytes_per_second=0.0)},
        links={}, senders={}, receivers={}, contention={}, warnings=[],
    )  # fmt: skip
    print_calibration(alone, "one.json", console())
    names = [line[:9].split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["cluster", "step", "device", "0", "1", "written", "use"]


def test_the_json():
    whole = calibration()
    result = json.loads(json.dumps(calibration_to_json(whole, "two.json"), allow_nan=False))
    assert result["cluster"] == json.loads(json.dumps(cluster_to_json(whole.cluster)))
    assert list(result) == [
        "output", "cluster", "step", "ops", "links", "contention", "communication",
        "background_share", "warnings", "seconds",
    ]  # fmt: skip
    fit = {"fixed_seconds": 1e-4, "seconds_per_unit": 5e-10, "median_relative_residual": 0.04,
           "r_squared": 0.9876, "fixed_ci95": None, "slope_ci95": None}  # fmt: skip
    assert result["links"][1] == {
        "from": GPU,
        "to": CPU,
        "bytes_per_second": 2e9,
        "latency_seconds": 1e-4,
        "fit": fit,
        "round_trip_seconds": {"1": 1e-4},
        "refused": "",
        "sender": {"fit": None, "transfer_seconds": {}},
        "receiver": {"fit": None, "transfer_seconds": {}},
    }
    assert result["links"][0]["sender"]["transfer_seconds"] == {"1": 1e-5}
    assert result["step"]["device_seconds"] == [2e-5, 4e-5]
    assert result["contention"] == {CPU: {"compute_slowdown": 0.25, "memory_slowdown": 0.5}}
    assert result["communication"] == {
        "rule": "duplex",
        "error_of_rule": {"duplex": 0.02, "sender": 0.3},
    }
    assert np.isclose(result["seconds"], 61.7) and result["warnings"] == ["the machine was busy"]
