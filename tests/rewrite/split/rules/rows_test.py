"""What a row of signs says of an op."""

import pytest
import tensorflow as tf

from rewrite.split.decision import Split, StayWhole
from rewrite.split.rules.op_view import UNKNOWN_SHAPE, InputView, OpView, StayWholeError
from rewrite.split.rules.rows import ROWS, by_row
from rewrite.split.rules.table import ELEMENTWISE, RULES
from rewrite.split.states import SUM, WHOLE, Sharded

BATCH = 6
FIRST, SECOND = Sharded(0), Sharded(1)


def answer(op, inputs, outputs, wanted=None, **attrs):
    """Of an op with these (state, shape) and shapes; attributes are bools or bytes."""
    node = tf.compat.v1.NodeDef(op=op, name="op")
    for name, value in attrs.items():
        setattr(node.attr[name], "s" if isinstance(value, bytes) else "b", value)
    views = [InputView(state, shape, "float32") for state, shape in inputs]
    types = ["float32"] * len(outputs)
    try:
        return by_row(OpView(node, BATCH, views, outputs, types, wanted))
    except StayWholeError as found:
        return found.answer


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "states"),
    [
        ("MatMul", [(FIRST, (6, 3)), (WHOLE, (3, 4))], [(6, 4)], {}, ((FIRST, WHOLE), FIRST)),
        (
            "MatMul",
            [(FIRST, (6, 3)), (FIRST, (6, 4))],
            [(3, 4)],
            {"transpose_a": True},
            ((FIRST, FIRST), SUM),
        ),
        ("Cholesky", [(SECOND, (2, 6, 3, 3))], [(2, 6, 3, 3)], {}, ((SECOND,), SECOND)),
        ("Conv2D", [(FIRST, (6, 8, 8, 3)), (WHOLE, None)], [None], {}, ((FIRST, WHOLE), FIRST)),
        ("BiasAddGrad", [(FIRST, (6, 5, 4))], [(4,)], {}, ((FIRST,), SUM)),
        (
            "BiasAddGrad",
            [(SECOND, (2, 6, 4))],
            [(6,)],
            {"data_format": b"NCHW"},
            ((SECOND,), FIRST),
        ),
        ("L2Loss", [(SECOND, (2, 6))], [()], {}, ((SECOND,), SUM)),
    ],
)
def test_what_has_a_sign_runs_along_together(op, inputs, outputs, attrs, states):
    assert answer(op, inputs, outputs, **attrs) == Split(states[0], (states[1],))


def test_what_is_broadcast_is_whole_along_a_stretched_dimension():
    inputs = [(FIRST, (6, 2, 3)), (WHOLE, (1, 3, 4))]
    assert answer("BatchMatMulV2", inputs, [(6, 2, 4)]) == Split((FIRST, WHOLE), (FIRST,))


def test_an_input_that_says_the_shape_is_told_of_it():
    inputs = [(WHOLE, (2,)), (FIRST, (6, 3))]
    [of_input] = [answer("AvgPoolGrad", inputs, [(6, 3)])]
    assert of_input == Split((WHOLE, FIRST), (FIRST,), {0: {0: FIRST}})
    assert answer("AvgPoolGrad", [(WHOLE, (1,)), inputs[1]], [(6, 3)]) == UNKNOWN_SHAPE


def test_what_wants_parts_says_what_is_cut_for_them():
    whole = [(WHOLE, (6, 3)), (WHOLE, (3, 4))]
    assert answer("MatMul", whole, [(6, 4)], wanted=FIRST) == Split((FIRST, WHOLE), (FIRST,))


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "reason"),
    [
        ("Cholesky", [(SECOND, (3, 6, 6))], [(3, 6, 6)], "works across the batch"),
        ("Cholesky", [(FIRST, None)], [None], "not known before the run"),
        ("Cross", [(FIRST, (6, 3)), (WHOLE, (1, 3))], [(6, 3)], "broadcast together"),
        ("InTopK", [(FIRST, (6, 3, 1)), (FIRST, (6,))], [(6,)], "not known before the run"),
    ],
)
def test_an_op_stays_whole_and_says_why(op, inputs, outputs, reason):
    found = answer(op, inputs, outputs)
    assert isinstance(found, StayWhole) and reason in found.reason


def test_each_row_is_a_rule():
    assert {op.partition(":")[0] for op in ROWS} <= RULES.keys()
    assert {"Add", "Relu"} <= ELEMENTWISE and "MatMul" not in ELEMENTWISE
