"""Tests of tfplace.compilation.ahead: when children are started, and what becomes of them."""

import json
import signal

import pytest

from graphs.host.child import start_child
from tfplace.compilation import ahead
from tfplace.progress import Phases, Progress


@pytest.fixture
def started(monkeypatch, tmp_path):
    """What is started instead of compiling on a fresh machine: (module, arguments) each."""
    calls = []

    def start(module, arguments, needs_tensorflow):
        assert not needs_tensorflow
        calls.append((module, arguments))
        sleep = ["-n1", "-r1", "import time; time.sleep(600)"]
        return start_child("timeit", sleep, needs_tensorflow=False)

    monkeypatch.setattr(ahead, "is_compiled", lambda kind, part: False)
    monkeypatch.setattr(ahead, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(ahead, "start_child", start)
    return calls


class _Heard(Progress):
    def __init__(self):
        self.sentences = []

    def say(self, sentence):
        self.sentences.append(sentence)


def test_on_a_fresh_machine_one_child_for_each_part(started):
    with ahead.compiling_ahead("k80x2"):
        pass
    module = "tfplace.compilation.warm_up"
    assert started == [(module, [ahead.RULES_1_TO_6, part]) for part in ahead.PARTS]


@pytest.mark.parametrize("missing", ["folder", "nothing"])
def test_where_it_is_compiled_or_nothing_can_be_kept_there_is_none(started, monkeypatch, missing):
    if missing == "folder":
        monkeypatch.setattr(ahead, "cache_folder", lambda: None)
    else:
        monkeypatch.setattr(ahead, "is_compiled", lambda kind, part: True)
    heard, phases = _Heard(), Phases()
    with ahead.compiling_ahead("k80x2") as compiling:
        compiling.wait(phases, heard)
    assert not started and not heard.sentences
    assert phases.seconds()["compile"] == 0.0


def test_leaving_ends_the_children(started):
    with ahead.compiling_ahead("k80x2") as compiling:
        processes = [child.process for child in compiling._children]
        assert len(processes) == len(ahead.PARTS)
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * len(processes)


def test_a_child_that_fails_or_takes_too_long_is_said_and_ended(started, monkeypatch, caplog):
    monkeypatch.setattr(ahead, "TIME_LIMIT_SECONDS", 0.01)
    heard, phases = _Heard(), Phases()
    with ahead.compiling_ahead("k80x2") as compiling:
        compiling._children[0].process.kill()
        compiling._children[0].process.wait()
        compiling.wait(phases, heard)
        compiling.wait(phases, heard)  # there is nothing left to wait for
    assert heard.sentences == ["compiling the simulator (once on this machine)"]
    failed, late = (record.getMessage() for record in caplog.records)
    assert "killed by SIGKILL" in failed and "over 0.01 s" in late
    assert phases.seconds()["compile"] > 0.0


def test_calibrated_clusters_are_of_the_other_kind(tmp_path):
    path = tmp_path / "cluster.json"
    assert ahead.expected_kind(str(path)) == ahead.RULES_1_TO_6
    assert ahead.expected_kind("workers:2") == ahead.RULES_1_TO_6
    assert ahead.expected_kind("workers:2", True) == ahead.WITH_EXECUTOR  # calibrated first
    assert ahead.expected_kind("k80x2", True) == ahead.RULES_1_TO_6
    for link, kind in (
        ({}, ahead.RULES_1_TO_6),
        ({"sender_busy_seconds": 1e-4}, ahead.WITH_EXECUTOR),
    ):
        path.write_text(json.dumps({"default_link": link}))
        assert ahead.expected_kind(str(path)) == kind
