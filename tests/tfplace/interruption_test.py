"""The first Ctrl-C ends with what is known, the second gives up, wherever they come."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import tensorflow as tf

from graphs.errors import OutputError
from tfplace import optimizing as optimize_module
from tfplace.choosing import baselines, find_placement
from tfplace.cli import main
from tfplace.interruption import Interrupted, interruptible
from tfplace.proving import proof
from tfplace.report import files


def interrupt(number=signal.SIGINT):
    signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_raising_work_ends_at_the_first_signal_and_held_work_notes_it(number):
    before = signal.getsignal(number)
    done = []
    with interruptible() as interruption:
        with interruption.held():
            interrupt(number)
            done.append("held")
            assert interruption.seen
        assert interruption.unless_seen(lambda: done.append("too late"), "left out") == "left out"
        with pytest.raises(KeyboardInterrupt) as caught, interruption.held():
            interrupt(number)
        assert not isinstance(caught.value, Interrupted)
        interrupt(number)  # the third disturbs nothing
    assert done == ["held"]
    assert signal.getsignal(number) is before


def test_a_program_that_called_gets_its_sigterm_afterwards():
    got = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        for number, hands_on in ((signal.SIGINT, True), (signal.SIGTERM, False)):
            with interruptible(hands_on) as outer, outer.held(), interruptible(hands_on=True):
                interrupt(number)
            assert not got
        with interruptible(hands_on=True) as outer, outer.held():
            with interruptible(hands_on=True):
                interrupt(signal.SIGTERM)
            assert outer.seen and not got
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_first_signal_raises_where_work_is_not_held():
    with interruptible() as interruption:
        with pytest.raises(Interrupted):
            interrupt()
        assert interruption.unless_seen(lambda: 1, 0) == 0


def test_compiled_work_that_hears_no_signal_is_not_waited_for():
    going, done = threading.Event(), threading.Event()

    def deaf():
        going.set()
        done.wait()

    with interruptible() as interruption, interruption.held():
        assert interruption.unless_seen_in_time(lambda: 1, 0, 100.0) == 1
        assert interruption.unless_seen_in_time(done.wait, 0, 0.0) == 0
        with pytest.raises(ZeroDivisionError):
            interruption.unless_seen_in_time(lambda: 1 / 0, 0, 100.0)
        main_thread = threading.get_ident()
        kill = threading.Thread(
            target=lambda: going.wait() and signal.pthread_kill(main_thread, signal.SIGINT)
        )
        kill.start()
        assert interruption.unless_seen_in_time(deaf, 0, 100.0) == 0
        assert interruption.seen
        done.set()
        kill.join()


def test_contexts_inside_one_another_share_what_was_seen():
    with interruptible() as outer, outer.held():
        with interruptible() as inner:
            assert inner is outer
            interrupt()
        assert outer.seen


def test_another_thread_sees_no_signal():
    seen = []

    def work():
        with interruptible() as interruption:
            seen.append(interruption.unless_seen(lambda: "done", "left out"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["done"]


@pytest.fixture
def run(tiny_rnnlm, tmp_path):
    """Runs optimize into tmp_path/deep/out; returns status and report or None."""

    def run(*flags):
        out = tmp_path / "deep" / "out"
        words = ["optimize", tiny_rnnlm, "--cluster=k80x2", "--algorithm=random", "--max_trials=3"]
        status = main([*words, f"--output_dir={out}", "--verbosity=-1", *flags])
        report = out / "assets.extra/tfplace/report.json"
        return status, json.loads(report.read_text()) if report.exists() else None

    return run


def test_during_the_baselines_what_is_known_is_written(run, monkeypatch, tmp_path):
    policy_of = baselines.policy_of  # type: ignore[attr-defined]

    def interrupted(name, *arguments):
        if name == "etf":
            interrupt()
        return policy_of(name, *arguments)

    monkeypatch.setattr(baselines, "policy_of", interrupted)
    status, report = run()
    assert status == 5
    assert report["baselines"]["topological"]["feasible"]
    for name in ("etf", "local_search"):
        assert report["baselines"][name]["reason"] == "not tried: interrupted"
    assert report["search"]["num_trials"] == 0 and report["search"]["interrupted"]
    assert report["verified"]["compared"] == [] and report["lower_bound_seconds"] is None
    assert report["verified"]["not_compared"] == [
        "the run: interrupted before the comparison was done"
    ]
    assert report["verified"]["structure"] and not report["verified"]["outputs_equal"]
    out = tmp_path / "deep" / "out"
    assert "train_step" in tf.saved_model.load(str(out)).signatures
    assert os.listdir(out.parent) == ["out"]


def test_at_the_first_evaluation_the_given_placement_is_kept(run, monkeypatch):
    class Interrupting(find_placement.SimulatingEvaluator):  # type: ignore[name-defined]
        is_first = True

        def __init__(self, problem):
            super().__init__(problem)
            if Interrupting.is_first:  # a second signal would end it at once
                Interrupting.is_first = False
                interrupt()

    monkeypatch.setattr(find_placement, "SimulatingEvaluator", Interrupting)
    status, report = run()
    assert (status, report["verdict"]) == (5, "kept_given")
    assert [name for name, b in report["baselines"].items() if b["feasible"]] == ["given"]


def test_before_a_placement_is_known_nothing_is_written(run, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(optimize_module, "prepare", lambda *_, **__: interrupt(signal.SIGTERM))
    assert run() == (5, None)
    assert capsys.readouterr().err == "tfplace: error: interrupted; nothing is left half-written\n"
    assert list(tmp_path.iterdir()) == []


def test_while_comparing_the_model_is_kept(run, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(proof, "verified", lambda *arguments: interrupt(signal.SIGTERM))
    status, report = run()
    assert (
        status == 5
        and report["search"] | {"num_trials": 3, "interrupted": True} == (report["search"])
    )
    assert (tmp_path / "deep/out/saved_model.pb").exists()
    said = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert len(said) == 1 and "interrupted after 3 trials; the best so far is in" in said[0]


@pytest.mark.parametrize(
    ("phase", "is_written"),
    [("read", False), ("price", False), ("search", True), ("write", True), ("prove", True)],
)
def test_at_the_beginning_of_each_phase(run, monkeypatch, tmp_path, capsys, phase, is_written):
    class Interrupting(optimize_module.Phases):  # type: ignore[name-defined]
        def begin(self, name):
            super().begin(name)
            if name == phase and not sent:
                sent.append(name)
                interrupt()

    def no_run(*arguments):
        raise AssertionError("a model is run after Ctrl-C")

    sent: list[str] = []
    monkeypatch.setattr("tfplace.commands.optimize.Phases", Interrupting)
    monkeypatch.setattr(proof, "verified", no_run)
    status, report = run()
    assert (status, report is not None) == (5, is_written)
    said = capsys.readouterr().err
    if is_written:
        assert report["verified"]["structure"] and "the best so far is in" in said
        assert (tmp_path / "deep/out/saved_model.pb").exists()
    else:
        assert said == "tfplace: error: interrupted; nothing is left half-written\n"
        assert list(tmp_path.iterdir()) == []


def test_the_proof_needs_no_second_build(run, monkeypatch):
    """What was built of a graph before it was placed is kept; making it anew takes seconds."""
    monkeypatch.setattr("rewrite.prove_structure._rebuilt", None)
    status, report = run("--verify=structure")
    assert status == 0 and report["verified"]["structure"]


def test_the_second_one_gives_up_and_leaves_nothing(run, monkeypatch, tmp_path, capsys):
    emit = files.emit  # type: ignore[attr-defined]

    def interrupted_twice(*arguments):
        emit(*arguments)
        interrupt()
        interrupt()

    monkeypatch.setattr(files, "emit", interrupted_twice)
    assert run() == (5, None)
    assert capsys.readouterr().err == "tfplace: error: interrupted; nothing is left half-written\n"
    assert list(tmp_path.iterdir()) == []


def test_a_real_process_ends_a_long_search_with_its_best(tiny_rnnlm, tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-m", "tfplace", "optimize", tiny_rnnlm, "--cluster=k80x2"]
    words += ["--algorithm=random", "--budget_seconds=3000", f"--output_dir={out}"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stderr:
            if " trials, best " in line:
                process.send_signal(signal.SIGTERM)
                break
        process.stderr.read()
    assert process.returncode == 5
    report = json.loads((out / "assets.extra/tfplace/report.json").read_text())
    assert report["search"]["num_trials"] > 0 and report["search"]["interrupted"]
    assert os.listdir(tmp_path) == ["out"]


def test_outputs_are_asked_for_before_the_work(run, monkeypatch, tmp_path):
    def prepare(options, before_pricing):
        raise AssertionError("too late")

    monkeypatch.setattr(optimize_module, "prepare", prepare)
    (tmp_path / "file").write_text("")
    for flag in (
        f"--dump_problem={tmp_path}/file/x.npz",
        "--dump_problem=/proc/x.npz",
        f"--dump_problem={tmp_path}",
        f"--dump_problem={tmp_path}/deep/out/x.npz",
        "--output_dir=/proc/out",
    ):
        assert run(flag)[0] == OutputError.exit_status
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
