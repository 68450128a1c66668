import json

import numpy as np

from tests.builders import Machine, Op, build_problem, chain
from tfplace.evaluation.simulator import Simulator
from tfplace.evaluation.timeline import chrome_trace, slot_of_op


def test_a_chain_over_two_devices_is_three_spans():
    problem = chain(2, size=4, machine=Machine(latency=0.5, bandwidth=2.0))
    trace = chrome_trace(problem, Simulator(problem).schedule(np.array([0, 1])))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in spans] == [
        ("Op", 0, 0, 0.0, 1e6),
        ("Op", 1, 0, 3.5e6, 1e6),
        ("op0:0", 2, 0, 1e6, 2.5e6),
    ]
    assert spans[2]["args"] == {"bytes": 4, "release_seconds": 3.0}
    names = [
        event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"
    ]
    assert names == ["/device:CPU:0", "/device:GPU:0", "links"]
    memory = [
        (event["pid"], event["ts"], event["args"]["bytes"])
        for event in trace["traceEvents"]
        if event["ph"] == "C"
    ]
    assert memory == [
        *[(0, 0.0, 4), (0, 3.5e6, 0)],
        *[(1, 0.0, 0), (1, 1e6, 4), (1, 3.5e6, 8), (1, 4.5e6, 0)],
    ]
    assert trace["otherData"] == {"makespan_seconds": 4.5, "communication": "duplex"}
    assert json.loads(json.dumps(trace)) == trace


def test_ops_take_the_lowest_free_slot():
    ops = [Op("a", 2.0), Op("b", 1.0), Op("c", 1.0, ("^b",)), Op("d", 1.0, ("^a",))]
    schedule = Simulator(build_problem(ops, Machine(1, slots=2))).schedule(np.zeros(4))
    assert slot_of_op(schedule, 1) == [0, 1, 1, 0]
