"""Slots out of how long equal ops take side by side."""

import pytest

from tfplace.measurement.calibration.device_figures import choose_slots


@pytest.mark.parametrize(
    ("seconds", "slots"),
    [
        ({1: 3.0, 2: 6.1}, 1),  # recorded: one worker, in ms
        ({1: 1.0, 2: 1.05, 3: 2.1, 4: 2.0}, 2),
        ({1: 1.0, 2: 1.0, 3: 1.1, 4: 1.0}, 4),
        ({1: 1.0, 2: 1.7, 3: 2.6, 4: 3.4}, 1),  # a little gain is nearer to none than to twice
        ({1: 1.0, 2: 0.9, 4: 1.1, 8: 2.2}, 4),
        ({1: 5.0}, 1),
    ],
)
def test_slots(seconds, slots):
    assert choose_slots(seconds) == slots
