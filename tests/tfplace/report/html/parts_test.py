"""Parts of the page by themselves: tables, the curve, memory over time, bars."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Machine, Op, build_problem, chain
from tests.tfplace.report.made_up import made_up
from tfplace.report.html.curve import best_so_far, memory_charts, thinned
from tfplace.report.html.elements import colours, data, facts, section, swatch, table, text
from tfplace.report.html.waiting_bars import step_bars, summary, waiting_bars
from tfplace.simulation.schedule import MemoryUse


def test_a_table_of_words_and_numbers():
    assert table(("a<b", "n"), [("<b>x</b>", "1")]) == (
        "<div class='scroll' tabindex='0'><table><thead><tr><th>a&lt;b</th><th class=n>n</th></tr>"
        "</thead><tbody><tr><td><b>x</b></td><td class=n>1</td></tr></tbody></table></div>"
    )
    assert facts([("a&b", "<i>c</i>")]) == "<dl><dt>a&amp;b</dt><dd><i>c</i></dd></dl>"
    assert section("id", "A & B", "one", "", "two") == (
        "<section id='id'><h2>A &amp; B</h2>\none\ntwo\n</section>"
    )
    assert swatch(3, "'x'") == "<span class='device'><i class='d3'></i>&#x27;x&#x27;</span>"


@given(st.text())
def test_no_text_ends_an_element(content):
    assert not set("<>\"'") & set(text(content))
    assert not set("<>&") & set(data("id", content).split(">", 1)[1].rsplit("</script>", 1)[0])


def test_a_cpu_beside_gpus_is_grey_and_many_devices_share_colours():
    ops = [Op("a")]
    assert colours(build_problem(ops, Machine(3))) == [0, 1, 2]
    assert colours(build_problem(ops, Machine(2, types=("CPU", "CPU")))) == [1, 2]
    assert colours(build_problem(ops, Machine(11)))[8:] == [8, 1, 2]


def test_the_curve_falls_from_stage_to_stage():
    search = {
        "history": [(0, 0.1, 9.0), (5, 0.5, 7.0), (10, 1.0, 5.0)],
        "stages": [{"name": "annealing", "num_trials": 6}, {"name": "<post>", "num_trials": 11}],
    }
    svg = best_so_far(search, None)
    # From 9 to 5 seconds and 0 to 10 trials, with 5 % above and below, on 720 x 180 pixels.
    first, second = re.findall(r"class='line d(\d)' d='([^']*)'", svg)
    assert first == ("1", "M70.0,24.2 L430.0,24.2 L430.0,106.0 L430.0,106.0")
    assert second[1].startswith("M430.0,106.0") and second[1].endswith("L790.0,187.8")
    assert "best step time so far: from 9 s to 5 s in 10 trials" in svg
    assert "annealing, 6 trials" in svg and "&lt;post&gt;, 5 trials" in svg
    assert "bound" not in svg
    assert "class='bound'" in best_so_far(search, 4.0)  # near enough to be shown
    near = {"history": [(0, 0.1, 9.0), (10, 1.0, 8.0)]}
    assert "class='bound'" not in best_so_far(near, 6.0)


def test_memory_keeps_its_peaks_when_it_is_thinned():
    use = MemoryUse(np.arange(8.0), np.array([1, 9, 2, 2, 3, 1, 7, 0]))
    seconds, held = thinned(use, 8.0, 4)
    assert (seconds.tolist(), held.tolist()) == ([0.0, 2.0, 4.0, 6.0], [9.0, 2.0, 3.0, 7.0])
    seconds, held = thinned(use, 8.0, 8)
    assert (seconds.tolist(), held.tolist()) == (use.seconds.tolist(), use.bytes.tolist())
    # What is held when a part begins counts in it, too.
    seconds, held = thinned(
        MemoryUse(np.array([0.0, 0.1, 0.2, 7.0]), np.array([1, 2, 3, 0])), 8.0, 2
    )
    assert held.tolist() == [3.0, 3.0]


@given(st.lists(st.integers(0, 100), min_size=2, max_size=40), st.integers(1, 10))
def test_the_peak_is_always_shown(held, num_points):
    use = MemoryUse(np.arange(float(len(held))), np.array(held))
    assert thinned(use, float(len(held)), num_points)[1].max() == max(held)


def test_memory_against_its_limit():
    problem = chain(2, size=60, machine=Machine(2, memory=[10**9, 100], bandwidth=60.0))
    _, explained = made_up(problem, [0, 1])
    charts = memory_charts(explained)
    assert "peak 60 B, less than 1 % of the limit of 954 MiB" in charts
    assert "<span class='over'>peak 120 B, 120 % of the limit of 100 B</span>" in charts
    assert charts.count("class='limit'") == 1  # the other is far from its own
    assert "memory plan" not in charts and "class='before'" not in charts
    before = dataclasses.replace(explained, before=explained.placed)
    assert memory_charts(before).count("class='before'") == 2


@pytest.mark.parametrize("bound", [None, 4.0])
def test_bars_are_as_long_as_the_longest(bound):
    report, _ = made_up(chain(4), [0, 0, 0, 0])
    report = dataclasses.replace(report, lower_bound_seconds=bound, measured=None)
    bars = step_bars(report)
    widths = re.findall(
        r"<span>([^<]*)</span><div class='track'><div style='width:([\d.]+)%'", bars
    )
    expected = [("given (as it came)", "100.00"), ("single (one device)", "88.89"),
                ("earliest task first", "0.00"), ("written", "44.44")]  # fmt: skip
    assert widths == expected + ([("proven lower bound", "44.44")] if bound else [])
    assert "can&#x27;t run: " not in bars and "can't run: model lacks memory" in bars
    assert "<b>4 s</b> <small>0.50 of single</small>" in bars
    etf = dataclasses.replace(report.baselines["etf"], reason="not tried: no time was left")
    bars = step_bars(dataclasses.replace(report, baselines={"etf": etf}))
    assert "<span>not tried: no time was left</span>" in bars
    assert "Not measured: " in bars


def test_who_waits_for_whom():
    _, explained = made_up(chain(2, size=4, machine=Machine(latency=0.5, bandwidth=2.0)), [0, 1])
    assert summary(explained) == (
        "CPU:0 is the busiest: it computes 22 % of the step. The longest wait is that of GPU:0: "
        "56 % of the step for transfers from CPU:0. The chain of ops and transfers that ends the "
        "step is 44 % ops and 56 % transfers."
    )
    parts = re.findall(
        r"class='p (d\d \w*)' style='width:([\d.]+)%' title='([^']*)'", waiting_bars(explained)
    )
    assert parts == [
        ("d0 ", "22.222", "CPU:0 computes: 1 s"),
        ("d0 nothing", "77.778", "CPU:0 has nothing left to do: 3.5 s"),
        ("d1 ", "22.222", "GPU:0 computes: 1 s"),
        ("d0 transfer", "55.556", "GPU:0 waits for transfers from CPU:0: 2.5 s"),
        ("d0 op", "22.222", "GPU:0 waits for ops on CPU:0: 1 s"),
        ("d0 transfer", "55.556", "transfers from CPU:0: 2.5 s"),
        ("d0 ", "22.222", "ops on CPU:0: 1 s"),
        ("d1 ", "22.222", "ops on GPU:0: 1 s"),
    ]
    _, idle = made_up(build_problem([Op("a", 0.0)]), [0])
    assert summary(idle) == "No op takes any time."
