"""Rules of op types that a line of text can hold: a term for each input and output.

A term has a sign for each dimension of its tensor:

- `b`, a small letter, can be cut; all that have the letter run along together. Where an output
  lacks it, the output is a sum over it.
- `C`, a capital, can't be cut.
- `*` stands for as many dimensions as there are, which can be cut, and are the same in all terms.
- `~` stands for the same, of an input that is broadcast to them.
- `+` stands for as many dimensions as there are, which can't be cut.

`_` is an input that is taken whole, whatever its rank; so are those without a term. `=` is one that
says the shape of output 0. `()` is an output without dimensions. Behind a term, `^attribute` says
what swaps its last two dimensions. `OP:NCHW` is for the op in that data format.

(As the annotations of nnScaler and the factors of Shardy are.)
"""

from collections.abc import Mapping, Sequence

from graphs.host.text_table import table_rows
from graphs.protos import Shape, is_open
from rewrite.split.decision import Answer, StayWhole
from rewrite.split.rules.factors import Labels, axes, broadcast, split_by_factors
from rewrite.split.rules.op_view import UNKNOWN_SHAPE, OpView, StayWholeError

DONT_FIT = StayWhole("its inputs don't fit together")
_BROADCAST = StayWhole("its inputs are broadcast together")
_MANY = "*~+"
_Signed = tuple[str, Shape]  # a term and the shape of its tensor

ROWS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    op: (terms[: terms.index("->")], terms[terms.index("->") + 1 :])
    for op, *terms in table_rows(__file__)
}
"""{op type: the terms of its inputs, those of its outputs}."""


def by_row(view: OpView) -> Answer:
    """The rule of an op type of ROWS."""
    op = view.node.op
    if f"{op}:NCHW" in ROWS and view.attr("data_format").s == b"NCHW":
        op = f"{op}:NCHW"
    inputs, outputs = ROWS[op]
    read = {
        i: (_signs(view, term), view.inputs[i].shape)
        for i, term in enumerate(inputs)
        if term not in ("_", "=")
    }
    made = [(term.strip("()"), view.output_shapes[i]) for i, term in enumerate(outputs)]
    leading = _leading([*read.values()], made)
    rows = [_labels(*read[i], leading) if i in read else None for i in range(len(inputs))]
    said = {i: 0 for i, term in enumerate(inputs) if term == "="}
    if any(view.inputs[i].shape != (len(view.result()),) for i in said):
        return UNKNOWN_SHAPE  # it may hold a part of the shape alone
    out = [_labels(signs, shape, leading) for signs, shape in made]
    return split_by_factors(view, rows, out, "sum", shape_inputs=said)


def _signs(view: OpView, term: str) -> str:
    """The signs of an input's term in the order that its attributes say."""
    signs, _, attribute = term.partition("^")
    is_swapped = attribute and view.attr(attribute).b
    return f"{signs[:-2]}{signs[-1]}{signs[-2]}" if is_swapped else signs


def _leading(inputs: Sequence[_Signed], outputs: Sequence[_Signed]) -> Sequence[int]:
    """The sizes that `*` stands for: of an input, or an output, that has it without a `+`."""
    many = [each for each in (*inputs, *outputs) if "*" in each[0]]
    alone = (each for each in many if "+" not in each[0] and each[1] is not None)
    signs, shape = next(alone, ("", None))
    if many and (shape is None or any(s is None for signs, s in inputs if "*" in signs)):
        raise StayWholeError(UNKNOWN_SHAPE)
    begin = signs.find("*")
    found = (shape or ())[begin : len(shape or ()) - (len(signs) - 1 - begin)]
    for signs, shape in inputs:
        begin = signs.find("*")
        sizes = (shape or ())[begin : begin + len(found)] if begin >= 0 else found
        if len(sizes) != len(found) or any(
            one != other and min(one, other) >= 0 for one, other in zip(sizes, found, strict=True)
        ):
            raise StayWholeError(_BROADCAST)
    return found


def _labels(signs: str, shape: Shape, leading: Sequence[int]) -> Labels:
    """A label for each dimension of a tensor, as far as they are known."""
    rest = 0
    if shape is not None:
        num_letters = sum(sign not in _MANY for sign in signs)
        rest = len(shape) - num_letters - ("*" in signs) * len(leading)
    is_rest = "~" in signs or "+" in signs
    if rest < 0 or (rest and not is_rest) or (shape is None and "~" in signs):
        raise StayWholeError(UNKNOWN_SHAPE)
    labels: list[str | None] = []
    for sign in signs:
        if sign == "*":
            labels += axes(len(leading))
        elif sign == "+":
            labels += [None] * rest
        elif sign == "~":
            labels += _broadcast((shape or ())[:rest], leading)
        else:
            labels.append(sign if sign.islower() else None)
    return labels


def _broadcast(shape: tuple[int, ...], result: Sequence[int]) -> Labels:
    """See `broadcast`."""
    if is_open(shape):
        raise StayWholeError(UNKNOWN_SHAPE)  # what has no known size may be stretched
    if len(shape) > len(result):
        raise StayWholeError(DONT_FIT)
    return broadcast(shape, result)
