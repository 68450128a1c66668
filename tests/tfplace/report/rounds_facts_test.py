"""What a report says of the rounds of real runs."""

import dataclasses

from tests.builders import two_towers
from tests.tfplace.report.made_up import made_up
from tfplace.choosing.run_results import MeasuredStep, Round
from tfplace.report.html.waiting_bars import step_bars
from tfplace.report.text_timings import rounds_facts

CORRECTED = {
    "speed of /device:CPU:0": (0.98, 0.9, 1.05),
    "speed of /device:CPU:1": (0.5, 0.4, 0.6),
    "link_latency": (3.0, 2.0, 4.5),
    "link_bytes_per_second": (0.9, 0.1, 9.0),
    "op_dispatch_seconds": (2e-6, 1e-6, 3e-6),
    "step_start_seconds": (1e-4, 0.0, 1e-3),
}
ROUNDS = [
    Round([MeasuredStep("single", 1.0, 2.0), MeasuredStep("other", 1.0, None)], {}),
    Round([MeasuredStep("single", 1.9, 2.0)], CORRECTED),
]


def test_only_what_is_known_to_be_off_is_said():
    assert list(rounds_facts(ROUNDS)) == [
        (
            "rounds",
            "2 rounds of real runs, 3 placements timed; before the first predictions missed by "
            "50 %, before the last by 5 %",
        ),
        ("taught", "/device:CPU:1 is 0.5 times as fast as taken (0.4 to 0.6)"),
        ("taught", "a transfer's latency is 3 times as long as taken (2 to 4.5)"),
        ("taught", "an op takes 2 µs more to start (1 µs to 3 µs)"),
    ]


def test_nothing_is_said_where_nothing_was_measured():
    assert not list(rounds_facts([]))


def test_the_page_and_the_json_have_them():
    report, _ = made_up(two_towers(), [0] * 9)
    report = dataclasses.replace(report, rounds=ROUNDS)
    assert "latency is 3 times as long" in step_bars(report)
    rounds = report.to_json()["rounds"]
    assert rounds[0]["measured"][1] == {
        "name": "other",
        "predicted_seconds": 1.0,
        "measured_seconds": None,
    }
    assert rounds[1]["corrected"]["link_latency"] == [3.0, 2.0, 4.5]
