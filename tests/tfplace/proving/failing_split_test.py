"""A split step that fails in a real run is not written, unless the unsplit one fails, too."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphs.errors import VerificationError
from graphs.problem import Infeasible
from tfplace.proving import split_proof
from tfplace.proving.split_proof import require_unsplit_fails

FAILURE = Infeasible("error", "Incompatible shapes: [3] vs. [2]")


@dataclasses.dataclass
class _Model:
    """What of a prepared model is asked for."""

    split: Any
    source: Any = dataclasses.field(
        default_factory=lambda: SimpleNamespace(whole_fetches=("whole/loss:0",))
    )
    feeds: Any = dataclasses.field(default_factory=dict)
    cluster: Any = dataclasses.field(default_factory=lambda: SimpleNamespace(name="workers:2"))


def graph():
    return _Model(SimpleNamespace(given=SimpleNamespace(saved_model_dir="")))


def asked(monkeypatch, prepared, failure, answer):
    """What was run beside it."""
    runs = []

    def trace(directory, tags, ends, *_):
        runs.append((directory, ends[1]))
        return answer

    monkeypatch.setattr(split_proof, "trace_saved_model", trace)
    require_unsplit_fails(prepared, Path("made"), ["serve"], failure, None)  # type: ignore[arg-type]
    return runs


def test_only_the_split_step_fails(monkeypatch):
    with pytest.raises(VerificationError, match=r"fails \(Incompatible shapes.* unsplit one runs"):
        asked(monkeypatch, graph(), FAILURE, [])


def test_what_may_stay(monkeypatch):
    runs = asked(monkeypatch, graph(), FAILURE, Infeasible("error", "no such file"))
    assert runs == [("made", ("whole/loss:0",))]
    late = Infeasible("timeout", "no answer within 9 s")
    assert asked(monkeypatch, graph(), late, []) == []
    assert asked(monkeypatch, _Model(None), FAILURE, []) == []
