"""Which rule explains transfers that go at once."""

import pytest

from graphs.cluster import COMMUNICATION_RULES
from tfplace.measurement.calibration.link_figures import (
    TransfersAtOnce,
    choose_rule,
    predicted_seconds,
)

BOTH = ((0, 1), (1, 0))
OUT = ((0, 1), (0, 2))
IN = ((1, 0), (2, 0))
ALONE = {(0, 1): 1.0, (1, 0): 2.0, (0, 2): 4.0, (2, 0): 8.0}


@pytest.mark.parametrize(
    ("rule", "both", "out", "into"),
    [
        ("duplex", 2.0, 5.0, 10.0),
        ("sender", 2.0, 5.0, 8.0),
        ("half_duplex", 3.0, 5.0, 10.0),
        ("pairwise", 2.0, 4.0, 8.0),
    ],
)
def test_a_rule_predicts_its_fullest_channel_and_is_found_again(rule, both, out, into):
    seconds = {BOTH: both, OUT: out, IN: into}
    assert {pairs: predicted_seconds(rule, ALONE, pairs) for pairs in seconds} == seconds
    noisy = [
        TransfersAtOnce(p, s * n)
        for (p, s), n in zip(seconds.items(), (1.05, 0.97, 1.02), strict=True)
    ]
    choice = choose_rule(ALONE, noisy)
    assert choice.rule == rule
    assert choice.error_of_rule[rule] == min(choice.error_of_rule.values()) < 0.05


def test_what_two_devices_do_not_tell_apart_is_duplex():
    choice = choose_rule({(0, 1): 1.0, (1, 0): 1.0}, [TransfersAtOnce(BOTH, 1.1)])
    assert choice.rule == "duplex"
    assert choice.error_of_rule["sender"] == choice.error_of_rule["duplex"]


def test_recorded_workers_share_their_cores():
    # Three transfers of 1 MiB each way, workers:2 on two cores: 0.6, 0.35 and 0.9 ms each.
    choice = choose_rule({(0, 1): 1.8e-3, (1, 0): 1.05e-3}, [TransfersAtOnce(BOTH, 2.7e-3)])
    assert choice.rule == "half_duplex"
    assert choice.error_of_rule["half_duplex"] == pytest.approx(0.0541, abs=1e-4)


def test_one_device_has_no_links():
    choice = choose_rule({}, [])
    assert choice.rule == "duplex"
    assert choice.error_of_rule == dict.fromkeys(COMMUNICATION_RULES, 0.0)
