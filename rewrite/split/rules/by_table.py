"""Rules of op types that a line of text can hold.

LETTERS has a row of letters for each input and output, a letter for each dimension: `b` can be
cut, all others can't. `_` is an input that is taken whole, whatever its rank. An output without a
`b` adds up from its parts.

LEADING has, for each input and output, how many of its last dimensions belong together; all before
them are apart. `_` is again an input that is taken whole.
"""

from collections.abc import Mapping

from rewrite.split.decision import Answer, StayWhole
from rewrite.split.rules.elementwise import UNKNOWN_SHAPE, axes
from rewrite.split.rules.factors import Factors, Labels, split_by_factors
from rewrite.split.rules.op_view import OpView

_LETTERS = """
LSTMBlockCell      bi bc bc _ _ _ _ _ -> bc bc bc bc bc bc bc
LSTMBlockCellGrad  bi bc bc _ _ _ _ _ bc bc bc bc bc bc bc bc -> bc bg c c c
GRUBlockCell       bi bc _ _ _ _ -> bc bc bc bc
GRUBlockCellGrad   bi bc _ _ _ _ bc bc bc bc -> bi bc bc bg
BlockLSTM          _ tbi bc bc _ _ _ _ _ -> tbc tbc tbc tbc tbc tbc tbc
BlockLSTMV2        _ tbi bc bc _ _ _ _ _ -> tbc tbc tbc tbc tbc tbc tbc
BlockLSTMGrad      _ tbi bc bc _ _ _ _ _ tbc tbc tbc tbc tbc tbc tbc tbc tbc \
                   -> tbi bc bc ig c c c g
BlockLSTMGradV2    _ tbi bc bc _ _ _ _ _ tbc tbc tbc tbc tbc tbc tbc tbc tbc \
                   -> tbi bc bc ig c c c g
InTopK             bc b -> b
InTopKV2           bc b _ -> b
LowerBound         bc bc -> bc
UpperBound         bc bc -> bc
Dilation2D                bhwc _ -> bhwc
Dilation2DBackpropInput   bhwc _ bhwc -> bhwc
Dilation2DBackpropFilter  bhwc _ bhwc -> hwc
DepthToSpace       bhwc -> bhwc
SpaceToDepth       bhwc -> bhwc
ExtractImagePatches       bhwc -> bhwc
ExtractVolumePatches      bdhwc -> bdhwc
MaxPoolGradGradV2  bhwc bhwc bhwc _ _ -> bhwc
MaxPool3DGradGrad  bdhwc bdhwc bdhwc -> bdhwc
ResizeNearestNeighborGrad bhwc _ -> bhwc
ResizeBicubicGrad  bhwc bhwc -> bhwc
ResizeArea         bhwc _ -> bhwc
ScaleAndTranslate  bhwc _ _ _ -> bhwc
ScaleAndTranslateGrad     bhwc bhwc _ _ -> bhwc
"""

_LEADING = """
Cholesky 2 -> 2
CholeskyGrad 2 2 -> 2
MatrixInverse 2 -> 2
MatrixDeterminant 2 -> 0
LogMatrixDeterminant 2 -> 0 0
MatrixSolve 2 2 -> 2
MatrixTriangularSolve 2 2 -> 2
MatrixSolveLs 2 2 _ -> 2
MatrixLogarithm 2 -> 2
MatrixSquareRoot 2 -> 2
TridiagonalSolve 2 2 -> 2
TridiagonalMatMul 2 2 2 2 -> 2
Qr 2 -> 2 2
Lu 2 -> 2 1
MatrixBandPart 2 _ _ -> 2
MatrixDiag 1 -> 2
MatrixDiagPart 2 -> 1
MatrixSetDiag 2 1 -> 2
FFT 1 -> 1
FFT2D 2 -> 2
FFT3D 3 -> 3
IFFT 1 -> 1
IFFT2D 2 -> 2
IFFT3D 3 -> 3
RFFT 1 _ -> 1
RFFT2D 2 _ -> 2
RFFT3D 3 _ -> 3
IRFFT 1 _ -> 1
IRFFT2D 2 _ -> 2
IRFFT3D 3 _ -> 3
TopK 1 -> 1 1
TopKV2 1 _ -> 1 1
NthElement 1 _ -> 0
Softmax 1 -> 1
LogSoftmax 1 -> 1
Cross 1 1 -> 1
RGBToHSV 1 -> 1
HSVToRGB 1 -> 1
AdjustContrastv2 3 _ -> 3
AdjustHue 3 _ -> 3
AdjustSaturation 3 _ -> 3
"""

Row = tuple[list[str], list[str]]


def _table(text: str) -> Mapping[str, Row]:
    """{op type: (its inputs, its outputs)}."""
    rows = {}
    for line in text.replace("\\\n", "").strip().splitlines():
        left, _, right = line.partition("->")
        op, *inputs = left.split()
        rows[op] = (inputs, right.split())
    return rows


LETTERS = _table(_LETTERS)
LEADING = _table(_LEADING)


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
