import collections
import json

import numpy as np
import pytest

from tests.builders import Machine, Op, build_problem, chain, random_executor, random_problem
from tfplace.simulation.simulator import Simulator
from tfplace.simulation.timeline import chrome_trace, slot_of_op


def test_a_chain_over_two_devices_is_three_spans_and_a_flow():
    problem = chain(2, size=4, machine=Machine(latency=0.5, bandwidth=2.0))
    trace = chrome_trace(problem, Simulator(problem).schedule(np.array([0, 1])))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [(e["name"], e["pid"], e["tid"], e["ts"], e["dur"]) for e in spans] == [
        ("Op", 1, 1, 0.0, 1e6),
        ("Op", 2, 1, 3.5e6, 1e6),
        ("op0:0", 3, 1, 1e6, 2.5e6),
    ]
    assert spans[2]["args"] == {"bytes": 4, "release_seconds": 3.0}
    names = [
        event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"
    ]
    assert names == ["/device:CPU:0", "/device:GPU:0", "links"]
    flow = [e for e in trace["traceEvents"] if e["ph"] in "stf"]
    assert [(e["ph"], e["id"], e["pid"], e["tid"], e["ts"]) for e in flow] == [
        ("s", 0, 1, 1, 0.5e6),
        ("t", 0, 3, 1, 2.25e6),
        ("f", 0, 2, 1, 4e6),
    ]
    memory = [
        (event["pid"], event["ts"], event["args"]["bytes"])
        for event in trace["traceEvents"]
        if event["ph"] == "C"
    ]
    assert memory == [
        *[(1, 0.0, 4), (1, 3.5e6, 0)],
        *[(2, 0.0, 0), (2, 1e6, 4), (2, 3.5e6, 8), (2, 4.5e6, 0)],
    ]
    assert trace["otherData"] == {"makespan_seconds": 4.5, "communication": "duplex"}
    assert json.loads(json.dumps(trace)) == trace


def test_transfers_that_overlap_by_their_latency_lie_on_threads_of_their_own():
    ops = [Op("a", outputs=(2,)), Op("b", outputs=(2,)), Op("c", 1.0, ("a:0", "b:0"))]
    problem = build_problem(ops, Machine(latency=5.0, bandwidth=2.0, slots=2))
    trace = chrome_trace(problem, Simulator(problem).schedule(np.array([0, 0, 1])))
    moved = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 3]
    assert [(e["tid"], e["ts"], e["dur"]) for e in moved] == [(1, 1e6, 6e6), (2, 2e6, 6e6)]
    names = [
        e["args"]["name"]
        for e in trace["traceEvents"]
        if e["name"] == "thread_name" and e["pid"] == 3
    ]
    assert names == ["/device:CPU:0 → /device:GPU:0", "/device:CPU:0 → /device:GPU:0 (2)"]


@pytest.mark.parametrize("seed", range(30))
def test_any_trace_keeps_to_the_format(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 30)
    if seed % 2:
        problem = random_executor(rng, problem)
    placement = rng.integers(0, problem.num_devices, problem.num_ops)
    trace = chrome_trace(problem, Simulator(problem).schedule(placement))
    require_format(json.loads(json.dumps(trace, allow_nan=False)))


def require_format(trace):
    """The rules of the trace event format, as far as these traces use it.

    "Trace Event Format" (Google, 2016) and what Perfetto's importer makes of it: complete events
    of one thread nest; a flow's events lie inside of slices, in the order of time.
    """
    assert trace["displayTimeUnit"] in ("ms", "ns")
    slices, flows, named = collections.defaultdict(list), collections.defaultdict(list), set()
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and event["pid"] > 0
        assert event["ph"] in tuple("XMCstf")
        if event["ph"] != "C":
            assert isinstance(event["tid"], int) and event["tid"] > 0
        if event["ph"] != "M":
            assert event["ts"] >= 0 and round(event["ts"] * 1e3, 3).is_integer()
        if event["ph"] == "X":
            assert event["dur"] >= 0
            start, length = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
            slices[event["pid"], event["tid"]].append((start, start + length))
        elif event["ph"] == "M":
            wanted = {"process_name": str, "thread_name": str,
                      "process_sort_index": int, "thread_sort_index": int}  # fmt: skip
            (value,) = event["args"].values()
            assert isinstance(value, wanted[event["name"]])
            named.add((event["name"], event["pid"], event["tid"]))
        elif event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
        else:
            flows[event["cat"], event["name"], event["id"]].append(event)
    for pid, tid in slices:
        assert ("process_name", pid, 1) in named and ("thread_name", pid, tid) in named
    for spans in slices.values():
        ends = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1], "slices of one thread must nest"
            ends.append(end)
    for events in flows.values():
        assert [event["ph"] for event in events] == ["s", "t", "f"]
        assert events[-1]["bp"] == "e"
        times = [event["ts"] for event in events]
        assert times == sorted(times)
        for event in events:
            at = event["ts"] * 1e3
            assert any(start <= at < end for start, end in slices[event["pid"], event["tid"]])


def test_ops_take_the_lowest_free_slot():
    ops = [Op("a", 2.0), Op("b", 1.0), Op("c", 1.0, ("^b",)), Op("d", 1.0, ("^a",))]
    schedule = Simulator(build_problem(ops, Machine(1, slots=2))).schedule(np.zeros(4))
    assert slot_of_op(schedule, 1) == [0, 1, 1, 0]
