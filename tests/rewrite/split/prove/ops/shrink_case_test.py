"""Large cases are proven in few shards of few entries; wrong answers are found there, too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tensorflow.core.framework.node_def_pb2 import NodeDef

from rewrite.split.decision import Split
from rewrite.split.prove.ops import prove_ops
from rewrite.split.prove.ops import shrink_case as shrinking
from rewrite.split.prove.ops.child import outcomes_of
from rewrite.split.prove.ops.op_case import CaseInput, CaseOutcome, OpCase
from rewrite.split.prove.ops.op_cases import op_cases
from rewrite.split.prove.ops.shrink_case import narrower_case, smaller_case
from rewrite.split.states import Partial, Sharded, Whole, shard_sizes
from tests.rewrite.split.prove.ops.prove_ops_test import WRONG, cases_of, decided
from tests.rewrite.split.rules.rules_test import CASES

WRONG_ATTRIBUTES = "softmax"


@pytest.fixture(autouse=True)
def all_cases_count_as_large(monkeypatch):
    monkeypatch.setattr(shrinking, "_MOST_ELEMENTS", -1)
    monkeypatch.setattr(shrinking, "_FEWEST", 1)  # the cases have five entries


def test_all_rules_are_proven_when_smaller():
    cases = [case for name in CASES for case in cases_of(name, 2)]
    smaller = [small for small in map(smaller_case, cases) if small]
    assert len(smaller) > 0.8 * len(cases)
    assert {small.sizes for small in smaller} == {(1, 1), (2, 1)}
    assert all(small.num_elements <= case.num_elements for small, case in zip(
        smaller, (c for c in cases if smaller_case(c)), strict=True))  # fmt: skip
    wrong = [(small.name, small.node.op, outcome)
             for small, outcome in zip(smaller, outcomes_of(smaller), strict=True)
             if outcome != CaseOutcome()]  # fmt: skip
    assert not wrong


@pytest.mark.parametrize("name", sorted(WRONG.keys() - {WRONG_ATTRIBUTES}))
def test_a_wrong_answer_is_not_proven_when_smaller(name):
    small = smaller_case(_wrong_case(name))
    assert small is None or outcomes_of([small])[0] != CaseOutcome()


def _wrong_case(name):
    flat, _, decisions, op = decided(name)
    right = decisions.answer_of_op[op]
    right = right if isinstance(right, Split) else Split((), ())
    answers = {**decisions.answer_of_op, op: dataclasses.replace(right, **WRONG[name])}
    changed = dataclasses.replace(decisions, answer_of_op=answers)
    (case,) = (case for case in op_cases(flat, changed, 2) if case.name == op)
    return case


@pytest.mark.parametrize("name", ["all", "any"])
def test_a_wrong_answer_for_many_bools_is_not_proven(name):
    case = _wrong_case(name)
    given, axis = case.inputs
    many = dataclasses.replace(given, shape=(600, 4))
    (outcome,) = outcomes_of([dataclasses.replace(case, inputs=(many, axis), sizes=(300, 300))])
    assert outcome.differs


def test_what_fails_when_smaller_is_run_as_it_is(monkeypatch):
    cases = cases_of("unary", 2)
    asked = []

    def answered(batches, *_):
        asked.append([case.sizes for case in batches])
        return [CaseOutcome(differs="its values differ")] * len(batches)

    monkeypatch.setattr(prove_ops, "_outcomes", answered)
    outcomes, smaller = prove_ops.prove_cases(cases, 10.0, None)
    assert smaller == 0
    assert asked == [[(2, 1)] * len(cases), [cases[0].sizes] * len(cases)]
    assert outcomes[0].differs == "its values differ"


def test_sizes_in_a_known_input_become_those_of_fewer_entries():
    (case,) = (c for c in cases_of("flatten", 2) if c.node.op == "Reshape")
    small = smaller_case(case)
    (position,) = (i for i, each in enumerate(small.inputs) if each.sizes_at)
    (at, state), = small.inputs[position].sizes_at.items()  # fmt: skip
    assert small.inputs[position].value[at] == state.size(sum(small.sizes))


def test_of_what_is_known_of_the_batch_the_first_entries_stay():
    known = np.arange(2 * 6 * 3).reshape(2 * 6, 3)
    state = Sharded(0, outer=2)
    first = shrinking._first_entries(known, state, 6, 2)
    assert first.tolist() == known.reshape(2, 6, 3)[:, :2].reshape(4, 3).tolist()


def test_small_cases_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(shrinking, "_MOST_ELEMENTS", 2**20)
    assert not any(map(smaller_case, cases_of("unary", 2)))


@pytest.mark.parametrize(
    ("batch", "shards", "wanted"),
    [(2048, 64, (2, 2, 2)), (2049, 64, (3, 2, 2)), (2111, 64, (3, 3, 2)),
     (2080, 64, (3, 2, 2)), (100, 3, (3, 2, 2)), (100, 2, (2, 2))],
)  # fmt: skip
def test_shards_that_differ_in_size_stay_so(monkeypatch, batch, shards, wanted):
    monkeypatch.setattr(shrinking, "_FEWEST", 2)
    assert shrinking._fewer(shard_sizes(batch, shards)) == wanted


@pytest.fixture
def other_sizes(monkeypatch):
    """All sizes but 1 become others, as wide ones become narrow."""
    monkeypatch.setattr(shrinking, "_WIDE", 1)
    monkeypatch.setattr(shrinking, "_NARROWEST", 2)
    monkeypatch.setattr(shrinking, "_REST", 1)


def test_all_rules_are_proven_with_other_sizes(other_sizes):
    cases = [case for name in CASES for case in cases_of(name, 2)]
    narrower = [each for each in map(narrower_case, cases) if each]
    assert len(narrower) > 40
    wrong = [(each.name, each.node.op, outcome)
             for each, outcome in zip(narrower, outcomes_of(narrower), strict=True)
             if outcome != CaseOutcome()]  # fmt: skip
    assert not wrong


@pytest.mark.parametrize("name", sorted(WRONG.keys() - {WRONG_ATTRIBUTES}))
def test_a_wrong_answer_is_not_proven_with_other_sizes(name, other_sizes):
    other = narrower_case(_wrong_case(name))
    assert other is None or outcomes_of([other])[0] != CaseOutcome()


CUT = (768, 3072), Sharded(0)


def _case(op, shapes, states, values=(None, None, None), output=CUT, **attrs):
    """A case of an op with inputs of these shapes and states, in three shards of 256 entries."""
    inputs = tuple(CaseInput(shape, "int32" if isinstance(value, np.ndarray) else "float32", *more)
                   for shape, *more in zip(shapes, states, values, strict=False)
                   for value in more[1:])  # fmt: skip
    node = NodeDef(op=op)
    for key, number in attrs.items():
        node.attr[key].i = number
    return OpCase("op", 1, node, node, inputs, (output[1],), {}, (output[0],), (256,) * 3, False,
                  None)  # fmt: skip


def test_wide_sizes_become_narrow_ones_but_for_that_of_the_batch():
    narrow = narrower_case(_case("MatMul", [(768, 768), (768, 3072)], [Sharded(0), Whole()]))
    assert [each.shape for each in narrow.inputs] == [(768, 24), (24, 32)]
    assert narrow.shapes == [(768, 32)]


def test_a_narrow_size_is_none_that_is_there():
    narrow = narrower_case(_case("MatMul", [(768, 24), (24, 3072)], [Sharded(0), Whole()]))
    assert [each.shape for each in narrow.inputs] == [(768, 24), (24, 32)]


def test_a_window_still_fits_between_an_image_and_the_next_one():
    """A convolution of 3 x 3 makes 71 of 73."""
    case = _case("Conv2D", [(768, 73, 73, 80), (3, 3, 80, 192)], [Sharded(0), Whole()],
                 output=((768, 71, 71, 192), Sharded(0)))  # fmt: skip
    narrow = narrower_case(case)
    assert [each.shape for each in narrow.inputs] == [(768, 33, 33, 40), (3, 3, 40, 48)]
    assert narrow.shapes == [(768, 31, 31, 48)]


def test_a_size_in_a_known_input_becomes_narrow_too():
    case = _case("UnsortedSegmentSum", [(768, 32), (768,), ()], [Sharded(0), Sharded(0), Whole()],
                 (None, None, np.array(3072)), ((3072, 32), Partial()))  # fmt: skip
    narrow = narrower_case(case)
    assert (narrow.inputs[2].value, narrow.shapes) == (24, [(24, 32)])


@pytest.mark.parametrize(
    "case",
    [_case("MatMul", [(768, 32), (32, 32)], [Sharded(0), Whole()], output=((768, 32), Sharded(0))),
     _case("Reshape", [(768, 3072), (2,)], [Sharded(0), Whole()]),
     _case("Gather", [(3072, 32), (3072,)], [Whole(), Whole()], (None, np.arange(3072))),
     _case("Split", [(768, 3072)], [Sharded(0)], split_dim_size=1024)],
    ids=["nothing wide", "products", "known and wide", "a size in an attribute"],
)  # fmt: skip
def test_what_cannot_be_narrow_stays(case):
    assert narrower_case(case) is None
