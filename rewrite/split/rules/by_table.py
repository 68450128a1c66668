"""Rules of op types that a line of text can hold.

LETTERS, of letters.txt, has a row of letters for each input and output, a letter for each
dimension: `b` can be cut, all others can't. `_` is an input that is taken whole, whatever its rank.
An output without a `b` adds up from its parts.

LEADING, of leading.txt, has, for each input and output, how many of its last dimensions belong
together; all before them are apart. `_` is again an input that is taken whole.
"""

from collections.abc import Mapping

from graphs.host.text_table import table_rows
from rewrite.split.decision import Answer, StayWhole
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE, axes
from rewrite.split.rules.factors import Factors, Labels, split_by_factors
from rewrite.split.rules.op_view import OpView

Row = tuple[list[str], list[str]]


def _table(name: str) -> Mapping[str, Row]:
    """{op type: (its inputs, its outputs)}."""
    cut = {op: (row, row.index("->")) for op, *row in table_rows(__file__, name)}
    return {op: (row[:arrow], row[arrow + 1 :]) for op, (row, arrow) in cut.items()}


LETTERS = _table("letters.txt")
LEADING = _table("leading.txt")


def by_letters(view: OpView) -> Answer:
    """The rule of an op type of LETTERS."""
    inputs, outputs = LETTERS[view.node.op]
    rows: list[Labels | None] = [None if row == "_" else _letters(row) for row in inputs]
    shapes = [*(each.shape for each in view.inputs), *view.output_shapes]
    for row, shape in zip([*inputs, *outputs], shapes, strict=True):
        if row != "_" and (shape is None or len(shape) != len(row)):
            return UNKNOWN_SHAPE
    return split_by_factors(view, Factors(rows, [_letters(row) for row in outputs], {"b": "sum"}))


def _letters(row: str) -> Labels:
    return ["b" if letter == "b" else None for letter in row]


def by_leading(view: OpView) -> Answer:
    """The rule of an op type of LEADING."""
    inputs, outputs = LEADING[view.node.op]
    rows: list[Labels | None] = []
    first: tuple[int, ...] | None = None
    for count, each in zip(inputs, view.inputs, strict=True):
        if count == "_":
            rows.append(None)
            continue
        if each.shape is None:
            return UNKNOWN_SHAPE
        together = int(count)
        leading = each.shape[: len(each.shape) - together]
        if first is not None and leading != first:
            return StayWhole("its inputs are broadcast together")
        first = leading
        rows.append([*axes(len(leading)), *[None] * together])
    results = []
    for count, shape in zip(outputs, view.output_shapes, strict=True):
        if shape is None:
            return UNKNOWN_SHAPE
        results.append([*axes(len(shape) - int(count)), *[None] * int(count)])
    return split_by_factors(view, Factors(rows, results))
