"""Tests of the clock of phases in tfplace.progress."""

import pytest

from tfplace.progress import PHASES, Phases


def test_every_second_belongs_to_the_phase_that_runs():
    now = [100.0]
    phases = Phases(lambda: now[0])
    for phase, second in (("read", 101.0), ("compile", 103.0), ("read", 106.0), ("search", 110.0)):
        now[0] = second
        phases.begin(phase)
    now[0] = 115.0
    wanted = {"start": 1.0, "read": 6.0, "compile": 3.0, "search": 5.0}
    assert phases.seconds() == {phase: wanted.get(phase, 0.0) for phase in PHASES}
    now[0] = 116.0
    assert phases.seconds()["search"] == 6.0


def test_a_phase_that_is_none_is_refused():
    with pytest.raises(ValueError, match="there is no such phase"):
        Phases().begin("lunch")
