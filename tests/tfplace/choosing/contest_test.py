"""Whether rivals are timed, too, before given and single are."""

from types import SimpleNamespace
from typing import Any

import pytest

from tfplace.choosing import time_choice
from tfplace.choosing.choose import Choice
from tfplace.choosing.compare import Comparison
from tfplace.choosing.find_placement import Searched
from tfplace.progress import Progress


def _candidate(name: str, seconds: float) -> Any:
    return SimpleNamespace(name=name, step_seconds=seconds, device_of_op=None)


@pytest.mark.parametrize(("seconds", "timed"), [(30.0, []), (300.0, ["rivals"])])
def test_rivals_are_timed_where_the_comparison_still_has_its_time(monkeypatch, seconds, timed):
    own, single = _candidate("found by auto", 0.24), _candidate("single", 0.46)
    choice = Choice(own, "placed", "faster")
    did: list[str] = []

    def quickest(*arguments: Any) -> Any:
        did.append("rivals")
        return own, []

    def compare(*arguments: Any) -> Any:
        did.append("compared")
        return Comparison({}, "given", 1.5, (1.25, 1.75), "tf.function", "faster", 0.1)

    monkeypatch.setattr(time_choice, "has_finalists", lambda *arguments: True)
    monkeypatch.setattr(time_choice, "finalists", lambda *arguments: [own])
    monkeypatch.setattr(time_choice, "quickest", quickest)
    monkeypatch.setattr(time_choice, "compare", compare)
    monkeypatch.setattr(time_choice, "placements_to_compare", lambda *arguments: {})
    monkeypatch.setattr(time_choice, "confirmed", lambda choice, *arguments: choice)
    prepared: Any = SimpleNamespace(cluster=SimpleNamespace(name="workers:2"))
    options: Any = SimpleNamespace(seed=0, evaluator="auto", budget_seconds=30.0)
    searched = Searched([single], [single, own], None)  # type: ignore[arg-type]
    time_choice._timed(prepared, options, searched, choice, Progress(), seconds)
    assert did == [*timed, "compared"]
