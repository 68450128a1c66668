"""What isn't proven of a split step is never passed off as proven, nor written where nothing is."""

from __future__ import annotations

import dataclasses
import math
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphs.errors import NotProvenError, VerificationError
from graphs.loading.sniff import sniff
from rewrite.split.prove.ops import prove_ops
from rewrite.split.prove.ops.prove_ops import NotProven, OpsProof
from rewrite.split.prove.written import prove_loads
from rewrite.split.prove.written.prove_loads import BegunLoad
from rewrite.split.prove_split import SplitProof
from rewrite.verify import RunLimits
from tests.builders import Op, build_problem
from tests.rewrite.split.child_here import CasesHere, ChildHere
from tests.rewrite.split.prove.ops.prove_ops_test import BegunChild
from tests.rewrite.split.split_model_test import _emitted, _saved
from tfplace.interruption import Interrupted, Interruption
from tfplace.proving import split_proof
from tfplace.proving.run_estimate import Decision, split_proof_sentence
from tfplace.proving.split_proof import BegunProof, Written, proven_split

NO_RUN = Decision(None, "it would take 3 hours")


@pytest.fixture(autouse=True)
def no_children(monkeypatch):
    monkeypatch.setattr(prove_ops, "AskedChild", CasesHere)
    monkeypatch.setattr(prove_loads, "AskedChild", ChildHere)


@pytest.fixture(scope="module")
def emitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("split")
    return _emitted(_saved(folder / "given", 5), folder / "split", 2)


def prepared(split):
    """What is begun of: a step, and a problem whose bound is three seconds."""
    problem = build_problem([Op("a", 1.0), Op("b", 2.0, ("a:0",))])
    return SimpleNamespace(problem=problem, unlimited=None, split=split)


@pytest.mark.parametrize(
    ("limits", "left", "run_seconds"),
    [
        (RunLimits(), -5.0, 600.0),  # --verify=run asks for it, however late it is
        (RunLimits(seconds=20.0, all_seconds=20.0), 12.0, 12.0),
        (RunLimits(seconds=20.0, all_seconds=20.0), -5.0, 0.0),
    ],
)
def test_how_long_whole_steps_may_run(limits, left, run_seconds):
    found = split_proof._limits(Decision(limits), left)
    assert found.run_seconds == run_seconds
    assert found.why_no_run == "the time that there was for it was used up"


def proven(emitted, directory=None, is_loaded=False, seconds=-5.0):
    split, made = emitted
    written = Written(Path(directory or made), ["serve"], is_loaded)
    return proven_split(split, written, {}, NO_RUN, seconds, Interruption())


def test_all_ops_are_proven_and_the_model_loaded_where_no_time_is_left(emitted):
    report = proven(emitted)
    assert report["proven_ops"] == report["distinct_ops"] > 10
    assert (report["loads"], report["unproven"]) == ("loads", "")
    assert "NOT PROVEN" not in split_proof_sentence(report)


def test_of_a_large_step_ops_and_loading_begin_beside_other_proofs(emitted, monkeypatch):
    monkeypatch.setattr(split_proof, "LEAST_NODES", 0)
    monkeypatch.setattr(prove_ops, "AskedChild", BegunChild)
    monkeypatch.setattr(BegunChild, "asked", [])
    monkeypatch.setattr(ChildHere, "asked", [])
    split, made = emitted
    written, interruption = Written(Path(made), ["serve"], False), Interruption()
    with BegunProof(prepared(split), interruption) as begun:
        report = proven_split(split, written, {}, NO_RUN, 0.0, interruption, begun.ops)
        assert interruption.unless_seen_by(begun.bound, 0.0, 60.0) == pytest.approx(3.0)
    assert report["proven_ops"] == report["distinct_ops"] > 10
    assert (report["loads"], report["unproven"], len(ChildHere.asked)) == ("loads", "", 1)
    assert BegunChild.closed and len(BegunChild.asked) == 1


@pytest.mark.parametrize(("least_nodes", "order"), [(0, "begun read"), (10**6, "read begun")])
def test_of_a_large_step_loading_begins_beside_reading_its_structure(
    emitted, monkeypatch, least_nodes, order
):
    happened = []

    class Begun(BegunLoad):
        def __init__(self, *arguments):
            happened.append("begun")
            super().__init__(*arguments)

    def read(*_, **__):
        happened.append("read")
        return SplitProof(OpsProof(9, 9, 0, (), ()), None, "not run: too long")

    monkeypatch.setattr(split_proof, "LEAST_NODES", least_nodes)
    monkeypatch.setattr(split_proof, "BegunLoad", Begun)
    monkeypatch.setattr(split_proof, "prove_split", read)
    assert proven(emitted)["loads"] == "loads"
    assert " ".join(happened) == order


def test_of_a_smaller_step_or_after_ctrl_c_only_the_bound_begins(emitted, monkeypatch):
    split, _ = emitted
    assert BegunProof(prepared(split), Interruption()).ops is None
    monkeypatch.setattr(split_proof, "LEAST_NODES", 0)
    interruption = Interruption()
    with pytest.raises(Interrupted):
        interruption.note(signal.SIGINT, None)
    assert BegunProof(prepared(split), interruption).ops is None


def test_a_step_of_which_nothing_is_proven_is_not_written(emitted, monkeypatch):
    monkeypatch.setattr(split_proof, "OPS_SECONDS", 0.0)
    with pytest.raises(NotProvenError, match=r"no proof of .* distinct split ops .*not run"):
        proven(emitted, is_loaded=True)


def found(run):
    missing = [NotProven("Svd", 2, "the time for proving ops was used up")]
    return lambda *_, **__: SplitProof(OpsProof(9, 7, 0, missing, ()), None, run)


def test_what_was_not_proven_is_said_aloud_and_in_the_report(emitted, monkeypatch, caplog):
    monkeypatch.setattr(split_proof, "prove_split", found("not run: too long"))
    report = proven(emitted, is_loaded=True)
    why = "2 of 9 distinct split ops (Svd): the time for proving ops was used up"
    assert report["unproven"].startswith(why)
    assert f"NOT PROVEN: {why}" in caplog.text
    assert split_proof_sentence(report).startswith(f"NOT PROVEN: {why}")


def test_whole_steps_that_are_the_same_are_a_proof(emitted, monkeypatch, caplog):
    monkeypatch.setattr(split_proof, "prove_split", found("equal"))
    assert proven(emitted, is_loaded=True)["unproven"] == "" == caplog.text


@pytest.mark.parametrize("is_loaded", [False, True])
def test_what_differs_is_not_written_whether_or_not_a_run_has_loaded_it(
    emitted, monkeypatch, is_loaded
):
    """It was taken for interrupted where nothing had loaded the model: written with a warning."""
    ops = OpsProof(9, 8, 0, (), found := ["op_a (MatMul): output 0 differs"])
    differing = SplitProof(ops, None, "not run: too long", found)
    monkeypatch.setattr(split_proof, "prove_split", lambda *_, **__: differing)
    with pytest.raises(VerificationError, match="1 differences, the first: op_a"):
        proven(emitted, is_loaded=is_loaded)


def test_what_differed_before_ctrl_c_is_not_written(emitted, monkeypatch):
    def interrupted(*_, **__):
        raise Interrupted

    ops = SimpleNamespace(differing=["op_a (MatMul): output 0 differs"])
    monkeypatch.setattr(split_proof, "prove_ops", lambda *_, **__: ops)
    monkeypatch.setattr(split_proof, "prove_split", interrupted)
    with pytest.raises(VerificationError, match="1 differences, the first: op_a"):
        proven(emitted)


def without_functions(directory, target):
    """A copy whose calls have lost what they call."""
    shutil.copytree(directory, target)
    saved_model = sniff(target).proto
    del saved_model.meta_graphs[0].graph_def.library.function[:]
    (target / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return str(target)


def test_a_model_that_does_not_load_is_not_written(emitted, tmp_path):
    with pytest.raises(VerificationError, match=r"tf\.saved_model\.load doesn't load"):
        proven(emitted, without_functions(emitted[1], tmp_path / "broken"))


def test_what_did_not_load_as_it_came_need_not_load(emitted, tmp_path):
    split, made = emitted
    given = without_functions(split.given.saved_model_dir, tmp_path / "given")
    bad = dataclasses.replace(split.given, saved_model_dir=given)
    report = proven(
        (dataclasses.replace(split, given=bad), made),
        without_functions(made, tmp_path / "broken"),
        seconds=math.inf,
    )
    assert "the model as it came doesn't load either" in report["loads"]
    assert "doesn't load either" in split_proof_sentence(report)


def test_where_nothing_is_proven_running_whole_steps_is_a_remedy():
    not_proven = SimpleNamespace(count=2, op_type="MatMul", reason="its shape is not known")
    ops = SimpleNamespace(not_proven=[not_proven], distinct_ops=2, proven_ops=0)
    proof = SimpleNamespace(ops=ops, run="not run: --verify=structure")
    with pytest.raises(NotProvenError, match="say --verify=run, free memory"):
        split_proof._unproven(proof)
