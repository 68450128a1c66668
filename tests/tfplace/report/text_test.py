"""Printed answers as they stand on 80 columns: whole expected output."""

import dataclasses
import re

import numpy as np
import pytest

from rewrite.verify import Verified
from tests.builders import Machine, two_towers
from tests.tfplace.report.made_up import made_up
from tfplace.choosing.device_counts import OnDevices
from tfplace.choosing.real_runs.peak_memory import MemoryPeak
from tfplace.choosing.run_results import Comparison, Tried
from tfplace.measurement.timing import Timing
from tfplace.report.device_check import DeviceCheck, DeviceMemory, Misplaced, print_check
from tfplace.report.html.page import html_report
from tfplace.report.inspection import OpTypeRow, inspect, print_inspection
from tfplace.report.report import apart_text, bound_text, needed_text, too_short_text
from tfplace.report.text import console, print_facts, table
from tfplace.report.text_report import (
    _print_how_to_load,
    print_phases,
    print_prediction,
    print_report,
)
from tfplace.report.text_timings import print_comparison, print_memory
from tfplace.simulation.simulated import prediction_of, simulated


@pytest.fixture
def printed(capsys):
    """Takes a function that prints to the console it gets; returns what it printed."""

    def print_it(function):
        function(console())
        return capsys.readouterr().out

    return print_it


def test_facts_are_wrapped_beside_their_names(printed):
    words = "word " * 30
    assert printed(lambda out: print_facts([("one", "short"), ("", words.strip())], out)) == (
        f"one       short\n          {'word ' * 14}".rstrip()
        + f"\n          {'word ' * 14}".rstrip()
        + "\n"
        "          word word\n"
    )
    assert printed(lambda out: print_facts([], out)) == ""


def test_names_from_models_are_no_markup(printed):
    name = "nets/[bold]/a[/b]:cat:.pb"
    rows = table(("name", "size"))
    rows.add_row(name, "1")
    assert printed(lambda out: print_facts([("model", name)], out)) == f"model     {name}\n"
    assert name in printed(lambda out: out.print(rows))
    report, _ = made_up(two_towers(1), [0, 0, 0], name)
    lines = printed(lambda out: print_report(report, out)).splitlines()
    assert lines[0] == f"model     {name} (graph_def), 3 ops"


def test_long_names_are_cut_where_a_table_says_so(printed):
    rows = table(("name", "", "n"), gap=1, name_width=8)
    rows.add_row("a" * 20, "left", "7")
    rows.add_row("b", "l", "12345")
    assert printed(lambda out: out.print(rows)) == (
        "name              n\naaaaaaa… left     7\nb        l    12345\n"
    )


NOT_RUN = Verified(
    False, 0.0, ["signature f: y"], ["the run: too long"], structure=True,
    structure_compared=["9 ops", "2 functions"], run="not run: too long",
)  # fmt: skip


def test_equal_is_not_said_of_a_run_that_was_not_compared(printed):
    report, explained = made_up(two_towers(machine=Machine(3)), [1, 2] * 4 + [1], "model")
    report = dataclasses.replace(report, verified=NOT_RUN)
    text = printed(lambda out: print_report(report, out))
    assert "\nproven    by structure; the same are 9 ops, 2 functions\n" in text
    assert "\nverified  the run was not compared: too long\n" in text
    fails = dataclasses.replace(report, verified=dataclasses.replace(NOT_RUN, fails="no kernel"))
    failing = printed(lambda out: print_report(fails, out))
    assert "unproven  the written step fails when it is run (no kernel); by structure" in failing
    assert "\nproven" not in failing and ">proven<" not in html_report(fails, explained)
    for said in (text, html_report(report, explained)):
        assert not re.search(r"\bequal\b", said.partition("<body>")[2] or said)


def test_a_report(printed, tmp_path, monkeypatch):
    (tmp_path / "saved_model.pb").touch()
    machine = Machine(3, latency=0.25, bandwidth=4.0, memory=[10**9, 20, 10**6])
    report, _ = made_up(two_towers(machine=machine), [1, 2] * 4 + [1], "model")
    report = dataclasses.replace(
        report, output_dir="out", search={**report.search, "interrupted": True}
    )
    expected = """\
model     model (graph_def), 9 ops
run       model
guessed   model
unit      model
cluster   hand, 3 devices
machine   devices and links as they were measured
costs     analytic, 50 % of the ops priced
          model
search    auto: 11 trials, 1 infeasible, 2.0 s, 6 trials/s
          2 shards: 3 trials, 0.5 s
placement    predicted  of single  fullest device
given              9 s      1.125             0 B
single             8 s      1.000             0 B
etf          can't run          -             0 B
written          5.5 s      0.688             2 B
lower bound     2.75 s      0.344
device         ops  busy  peak   memory
/device:CPU:0    0   0 %   0 B  954 MiB
/device:GPU:0    5  91 %   2 B     20 B
/device:GPU:1    4  73 %   2 B  977 KiB
links     1 transfer, 1 B a step, duplex channels
bound     no placement can be faster than 2.75 s; this one is within 100 %
measured  given: 1 s a step (p10 900 ms, p90 1.1 s, 20 runs)
measured  single: could not run: model ran out of memory
measured  placed: 1 s a step (p10 900 ms, p90 1.1 s, 20 runs)
speed-up  1.50x over given (95 % interval 1.40 to 1.60), through tf.function
          placed against given: faster
noise     model
ran on    not known: it was not traced
note      a step measured 1 s where 5.5 s was predicted: ops or transfers were
          priced too high; go by the measured times
verified  1 value of given and emitted model is equal, largest difference 1e-08
          not compared: model
stopped   interrupted; this is the best found until then
verdict   placed: model is twice as fast
advice    model
written   out
"""
    assert printed(lambda out: print_report(report, out)) == expected
    saved = dataclasses.replace(report, output_dir=str(tmp_path), measured=None)
    lines = printed(lambda out: print_report(saved, out)).splitlines()
    assert lines[-4:] == [
        f"written   {tmp_path}",
        f"load it   tfplace.load({str(tmp_path)!r}),",
        "          which keeps variables on their devices;",
        "          tf.saved_model.load computes the same but may move weights every step",
    ]
    assert not any(line.startswith(("measured", "speed-up", "ran on")) for line in lines)
    cut = dataclasses.replace(saved, split={"weights": [{}]})
    assert "tfplace.make_whole(model)" in printed(lambda out: _print_how_to_load(cut, out))
    for needs, said in (
        ("workers", f"tfplace.load({str(tmp_path)!r}, start_workers=True),"),
        ("connection", f"tfplace.load({str(tmp_path)!r})"),
    ):
        needing = dataclasses.replace(saved, loading_needs=needs)
        lines = printed(lambda out, it=needing: print_report(it, out)).splitlines()
        assert lines[-3] == f"load it   {said}"
    monkeypatch.chdir(tmp_path)
    near = dataclasses.replace(needing, output_dir=".")
    lines = printed(lambda out: print_report(near, out)).splitlines()
    assert lines[-2].startswith("load it   tfplace.load('.') in a process that is connected")


def test_a_prediction(printed):
    machine = Machine(2, latency=0.25, bandwidth=4.0, memory=[10**9, 2])
    prediction = prediction_of(
        simulated(two_towers(machine=machine), np.array([0, 1] * 4 + [0], np.int32))
    )
    expected = """\
predicted 5.5 s a step
device         ops  busy  peak   memory
/device:CPU:0    5  91 %   2 B  954 MiB
/device:GPU:0    4  73 %   2 B      2 B
links     1 transfer, 1 B a step, duplex channels
"""
    assert printed(lambda out: print_prediction(prediction, out)) == expected


def test_timings_and_memory(printed):
    comparison = Comparison(
        {"given": Timing(0.0123, 0.012, 0.013, 40), "single": "it ran out of memory",
         "placed": Timing(0.01, 0.0099, 0.0101, 40)},
        "given", 1.23, (1.2, 1.25), "tf.function", "faster", 0.1,
        ["other processes took 10% of this machine's CPU time meanwhile"],
    )  # fmt: skip
    expected = """\
measured  given: 12.3 ms a step (p10 12 ms, p90 13 ms, 40 runs)
measured  single: could not run: it ran out of memory
measured  placed: 10 ms a step (p10 9.9 ms, p90 10.1 ms, 40 runs)
speed-up  1.23x over given (95 % interval 1.20 to 1.25), through tf.function
          placed against given: faster
noise     other processes took 10% of this machine's CPU time meanwhile
"""
    assert printed(lambda out: print_comparison(comparison, out)) == expected
    none_ran = dataclasses.replace(comparison, baseline="", noise=[])
    assert len(printed(lambda out: print_comparison(none_ran, out)).splitlines()) == 3
    memory = {
        "given": {"/device:GPU:0": MemoryPeak(2048, 3072), "/device:CPU:0": MemoryPeak(10, None)},
        "placed": "it died",
    }
    expected = """\
memory    given: /device:GPU:0: 2 KiB predicted, 3 KiB measured
memory    given: /device:CPU:0: 10 B predicted, not counted there
memory    placed: could not run: it died
"""
    assert printed(lambda out: print_memory(memory, out)) == expected
    assert printed(lambda out: print_memory({}, out)) == ""


def test_one_placement_under_several_names_is_one_line_without_a_speed_up(printed):
    timing = Timing(0.0123, 0.012, 0.013, 40)
    comparison = Comparison(
        dict.fromkeys(("given", "single", "placed"), timing), "single", 1.0, (1.0, 1.0),
        "tf.function", "no difference seen", same_as={"single": "given", "placed": "given"},
    )  # fmt: skip
    expected = """\
measured  given, single and placed: 12.3 ms a step (p10 12 ms, p90 13 ms, 40
          runs)
"""
    assert printed(lambda out: print_comparison(comparison, out)) == expected


def test_candidates_that_lost_are_shown_with_the_reason(printed):
    tried = [
        Tried("found by auto", 0.001, 0.003, "1.50 times as long as the fastest"),
        Tried("best if links were 4 times slower", 0.002, 0.002, "the fastest of these"),
        Tried("best if links were 16 times slower", 0.002, None, "could not run: it crashed"),
    ]
    comparison = Comparison({"given": "it died"}, "", 1.0, (1.0, 1.0), "session", tried=tried)
    assert (
        printed(lambda out: print_comparison(comparison, out))
        == """\
tried     found by auto: predicted 1 ms, measured 3 ms, 1.50 times as long as
          the fastest
tried     best if links were 4 times slower: predicted 2 ms, measured 2 ms, the
          fastest of these
tried     best if links were 16 times slower: predicted 2 ms, could not run: it
          crashed
measured  given: could not run: it died
"""
    )


def test_the_best_step_for_fewer_devices(printed):
    report, explained = made_up(two_towers(machine=Machine(5)), [1, 2] * 4 + [1], "model")
    rows = (OnDevices(1, None, reason="GPU:0 needs 40 bytes"), OnDevices(2, 8.0, 2, 3),
            OnDevices(4, 4.0, 4, 1234))  # fmt: skip
    report = dataclasses.replace(report, by_devices=rows)
    text = printed(lambda out: print_report(report, out))
    assert (
        """
at most     predicted  of single  transfers
1 device   none found          -          -
2 devices         8 s      1.000          3
4 devices         4 s      0.500      1,234
"""
        in text
    )
    needed = "all 4 devices: the best step found on 2 takes 2.00 times as long"
    assert f"\nneeded    {needed}\n" in text
    page = html_report(report, explained)
    assert "GPU:0 needs 40 bytes" in page and needed[1:] in page


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([], ""),
        ([None, None], ""),
        ([1.0, 0.995, 0.995], "1 of 4 devices is enough: more gain less than 1 %"),
        ([1.0, 0.5, 0.499], "2 of 4 devices are enough: more gain less than 1 %"),
        ([None, None, 1.0], "all 4 devices: nothing that was found fits 2"),
    ],
)
def test_how_many_devices_are_needed(steps, sentence):
    rows = [OnDevices(2**i, seconds, 2**i) for i, seconds in enumerate(steps)]
    assert needed_text(rows) == sentence


def test_what_needs_many_devices_may_leave_some_out():
    rows = [OnDevices(1, 3.0, 1), OnDevices(2, 2.0, 2), OnDevices(4, 1.0, 3)]
    needed = "3 of 4 devices: the best step found on 2 takes 2.00 times as long"
    assert needed_text(rows) == needed


def test_where_no_gpu_is_used_the_cpu_is_enough():
    rows = [OnDevices(1, 1.0, 0), OnDevices(2, 1.0, 0)]
    assert needed_text(rows) == "the CPU alone is enough: GPUs gain less than 1 %"


@pytest.mark.parametrize(
    ("step", "bound", "sentence"),
    [
        (1.0, None, ""),
        (17.33, 1.0, ""),  # "within 1633 %"
        (5e-7, 5e-7, ""),
        (1.0, 0.8, "no placement can be faster than 800 ms; this one is within 25 %"),
    ],
)
def test_a_bound_that_proves_next_to_nothing_is_not_a_sentence(step, bound, sentence):
    assert bound_text(step, bound) == sentence


def test_prediction_and_measurement_that_are_far_apart_deserve_a_sentence():
    assert apart_text(390e-6, 700e-6) == ""
    text = apart_text(390e-6, 2.75e-3)
    assert text.startswith("a step measured 2.75 ms where 390 µs was predicted: a prediction ")
    assert too_short_text(5e-7).startswith("a step of 0.5 µs is less than TensorFlow takes to")
    assert too_short_text(2e-4) == ""


def test_a_check(printed):
    bad = Misplaced("f/y", "MatMul", "/device:GPU:7", "unknown_device", "there is no such device")
    check = DeviceCheck(
        path="model.pb", kind="graph_def", cluster="k80x2", num_ops=1234,
        devices_asked={"": 1230, "/device:GPU:7": 4},
        misplaced=[bad, dataclasses.replace(bad, op="z", asked="")] + [bad] * 20,
        memory={"/device:CPU:0": DeviceMemory(10, 2048), "/device:GPU:0": DeviceMemory(4096, 2048)},
        runs=False,
    )  # fmt: skip
    lines = printed(lambda out: print_check(check, out)).splitlines()
    repeated = lines[6]
    expected = """\
model     model.pb (graph_def), 1,234 ops
cluster   k80x2, 2 devices
asked     no device: 1,230 ops
asked     /device:GPU:7: 4 ops
not there z (MatMul) anywhere: there is no such device
          and 2 more ops (--format=json has all)
memory    /device:CPU:0: 10 B of 2 KiB
memory    /device:GPU:0: 4 KiB of 2 KiB, too much
verdict   does not run on k80x2 as it is: 22 of 1,234 ops can't run where they
          are asked; /device:GPU:0 is too small\
"""
    assert "\n".join(line for line in lines if line != repeated) == expected
    assert lines.count(repeated) == 19
    runs = dataclasses.replace(check, misplaced=[], runs=True)
    (line,) = printed(lambda out: print_check(runs, out)).splitlines()[-1:]
    assert line == "verdict   runs on k80x2 as its device strings say"
    free = dataclasses.replace(runs, devices_asked={"": 1234})
    assert "asks for no device" in printed(lambda out: print_check(free, out))


def test_an_inspection(printed, weight):
    inspection = dataclasses.replace(
        inspect(weight),
        path="weight.pb",
        guessed=["x is fed 4 rows"],
        op_types=[OpTypeRow("MatMul", 2, 1.5e-6, 56), OpTypeRow("Const", 1600, 0.0, 32)] * 11,
        units={"loop": "its trip count depends on the data"},
        opened={"cond": "both branches"},
        without_gpu_kernel={f"Type{n}": n for n in range(12)},
    )
    lines = printed(lambda out: print_inspection(inspection, out)).splitlines()
    assert lines[-1] == "and 2 more op types (--format=json has all)"
    expected = """\
model         weight.pb (graph_def)
fits          yes, peak 164 B of 10.8 GiB of /device:GPU:0
run           training: the op train_op, and loss
guessed       x is fed 4 rows
signatures    none
size          18 ops, 17 tensors, 18 edges, 0 functions opened
colocation    3 groups, the largest of 8 ops
devices       none asked for 16, /device:GPU:1 2
memory        variables 24 B (trainable 24 B), constants 32 B
FLOPs         116 a step
unknown       0 tensors of unknown size
unpriced      nothing
CPU only      Type0 0, Type1 1, Type2 2, Type3 3, Type4 4, Type5 5, Type6 6,
              Type7 7, Type8 8, Type9 9, and 2 more
unit          loop: its trip count depends on the data
opened        cond: both branches
op type    ops  time on k80x2  output
MatMul       2         1.5 µs    56 B\
"""
    assert "\n".join(lines[:-20]) == expected


def test_phases_have_their_seconds_and_a_sum(printed):
    report, _ = made_up(two_towers(), [0] * two_towers().num_ops)
    report = dataclasses.replace(report, seconds_by_phase={"start": 0.54, "search": 20.0})
    assert printed(lambda out: print_phases(report, out)) == (
        "phase   seconds\nstart       0.5\nsearch     20.0\nin all     20.5\n"
    )
