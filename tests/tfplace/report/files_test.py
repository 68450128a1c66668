"""The files beside the emitted model."""

import json

import numpy as np

from tests.builders import chain
from tests.tfplace.report.made_up import made_up
from tfplace.report.files import placement_files, report_files
from tfplace.simulation.simulated import simulated
from tfplace.simulation.timeline import chrome_trace


def test_the_placement_is_that_of_the_models_own_ops(weight):
    device_of_op = np.arange(weight.problem.num_ops, dtype=np.int32) % 3
    placed = simulated(weight.problem, device_of_op)
    files = placement_files(weight, placed.device_of_op, placed)
    assert list(files) == ["placement.json", "timeline.json"]
    names = weight.problem.device_names
    assert json.loads(files["placement.json"]) == {
        node.name: names[device]
        for node, device in zip(weight.flat.graph_def.node, device_of_op, strict=True)
    }
    indented = json.dumps(json.loads(files["placement.json"]), indent=1)
    assert files["placement.json"] == indented.encode() + b"\n"
    trace = json.loads(files["timeline.json"])
    assert trace == json.loads(json.dumps(chrome_trace(weight.problem, placed.schedule)))


def test_the_report_is_there_for_programs_and_for_people():
    report, explained = made_up(chain(2), [0, 1])
    files = report_files(report, explained)
    assert json.loads(files["report.json"]) == json.loads(json.dumps(report.to_json()))
    assert files["report.json"].endswith(b"}\n")
    assert files["report.html"].startswith(b"<!doctype html>")
