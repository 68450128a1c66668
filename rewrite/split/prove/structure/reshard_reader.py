"""What a tensor of a split step may stand for; what joins, sums, cuts and weighs such tensors.

An op is understood by what it does to what it reads.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from graphs.protos import NodeDef
from rewrite.pass_base import RewriteError
from rewrite.split.states import SUM, Partial, Sharded, State

Shape = tuple[int, ...]
_COMBINES = {
    "AddN": "sum", "AddV2": "sum", "Add": "sum", "Maximum": "max", "Minimum": "min", "Mul": "prod",
    "LogicalAnd": "all", "LogicalOr": "any",
}  # fmt: skip
_ATTRS = {
    "ConcatV2": {"T", "Tidx", "N"}, "SplitV": {"T", "Tlen", "num_split"},
    "Reshape": {"T", "Tshape"}, "AddN": {"T", "N"}, "LogicalAnd": set(), "LogicalOr": set(),
    "EnsureShape": {"T", "shape"},
}  # fmt: skip
_OF_ROWS = frozenset({"AddN", "AddV2", "Identity", "ConcatV2"})
"""What may read a block of rows."""


class Meaning(NamedTuple):
    """What a tensor of the split step is of a tensor of the unsplit one.

    Each input of each op has one, and is compared with another: a tuple is made and compared in C.

    Attributes:
      tensor: "op:i" of the unsplit step.
      state: how that is cut, or what its terms combine to; None for all of it.
      shards: which of its parts this is, or which terms are combined already.
      is_apart: whether the blocks outside of the batch have a dimension of their own, at
        state.axis; state.inner is not known yet where all of it is apart.
      first_row: of numbers of rows: which row of the whole they count from.
      rows: the first row and the one behind the last that it holds; None for all of them.
      is_unweighted: whether it still has to be multiplied by its share of the batch.
    """

    tensor: str
    state: State | None = None
    shards: frozenset[int] = frozenset()
    is_apart: bool = False
    is_unweighted: bool = False
    first_row: int = 0
    rows: tuple[int, int] | None = None


Value = Meaning | np.ndarray


@dataclasses.dataclass(frozen=True)
class Whole:
    """A tensor of the unsplit step: its shape and the number of its type."""

    shape: Shape | None
    dtype: int


class JointReader:
    """Understands the ops that join, combine, cut and weigh."""

    def __init__(self, sizes: Sequence[int], whole_of: Callable[[str], Whole]):
        """Begins, with the entries of the batch in each shard."""
        self._sizes = tuple(sizes)
        self._whole_of = whole_of
        self.found: dict[str, set[tuple[str, State | None]]] = {
            "join": set(),
            "sum": set(),
            "cut": set(),
        }
        """What is joined, summed or cut: tensors, and how they are cut."""
        self.exact: dict[str, float] = {}
        """{constant: the share of the batch that it is rounded from}."""

    def read(self, node: NodeDef, inputs: Sequence[Value]) -> list[Meaning]:
        """What the outputs of a joint are; raises RewriteError where they make no sense."""
        first = inputs[0] if inputs else None
        if not isinstance(first, Meaning) or first.first_row:
            raise self._wrong(node)
        is_block = any(isinstance(each, Meaning) and each.rows for each in inputs)
        if is_block and node.op not in _OF_ROWS:
            raise self._wrong(node)
        allowed = _ATTRS.get(node.op, {"T"})
        if set(node.attr) != allowed:
            raise self._wrong(node)
        if "T" in allowed and node.attr["T"].type != self._whole_of(first.tensor).dtype:
            raise self._wrong(node)
        if node.op == "ConcatV2":
            return [self._put_together(node, inputs) if is_block else self._joined(node, inputs)]
        if node.op == "SplitV":
            is_in_blocks = node.attr["num_split"].i != len(self._sizes)
            return (self._blocks if is_in_blocks else self._cut)(node, inputs)
        if node.op == "Reshape":
            return [self._reshaped(node, inputs)]
        if node.op == "EnsureShape":
            return [self._ensured(node, first)]
        if node.op == "Identity":
            return [first]
        if node.op == "Sub":
            return [self._rebased(node, inputs)]
        if node.op == "ZerosLike" and first == Meaning(first.tensor):
            return [Meaning(first.tensor, SUM, frozenset())]  # a sum of none of its terms
        if first.is_unweighted:
            return [self._weighted(node, inputs)]
        return [self._combined(node, inputs)]

    def shape(self, meaning: Meaning) -> Shape:
        """The shape of a tensor that is not apart."""
        shape, state = self._whole_of(meaning.tensor).shape, meaning.state
        assert shape is not None
        if isinstance(state, Sharded):
            (shard,) = meaning.shards
            size = state.size(self._sizes[shard])
            return (*shape[: state.axis], size, *shape[state.axis + 1 :])
        return shape  # type: ignore[no-any-return]

    def _wrong(self, node: NodeDef) -> RewriteError:
        return RewriteError(
            f"reading {node.name!r} of the split step: a {node.op} of these inputs joins, sums or "
            "cuts nothing"
        )

    def _ensured(self, node: NodeDef, given: Meaning) -> Meaning:
        """The same tensor, whose last dimension TensorFlow knows."""
        *others, last = [dim.size for dim in node.attr["shape"].shape.dim]
        shape = () if given.is_apart else self.shape(given)
        if len(shape) != len(others) + 1 or last != shape[-1] or {*others} - {-1}:
            raise self._wrong(node)
        return given

    def _rebased(self, node: NodeDef, inputs: Sequence[Value]) -> Meaning:
        """Numbers of rows, counted from another one than the first."""
        given, start = inputs
        assert isinstance(given, Meaning)
        is_part = isinstance(given.state, Sharded) and len(given.shards) == 1
        if not is_part or given.is_apart or not isinstance(start, np.ndarray) or start.shape:
            raise self._wrong(node)
        return given._replace(first_row=int(start))

    def _joined(self, node: NodeDef, inputs: Sequence[Value]) -> Meaning:
        parts = [part for part in inputs[:-1] if isinstance(part, Meaning)]
        first = parts[0]
        for shard, part in enumerate(parts):
            if part != first._replace(shards=frozenset({shard})):
                raise self._wrong(node)
        state = first.state
        is_all = len(parts) == len(self._sizes) == node.attr["N"].i == len(inputs) - 1
        if not isinstance(state, Sharded) or not is_all or first.is_unweighted:
            raise self._wrong(node)
        if first.is_apart != (state.outer > 1) or not _is(inputs[-1], state.axis + first.is_apart):
            raise self._wrong(node)
        self.found["join"].add((first.tensor, None))
        return Meaning(first.tensor, state if first.is_apart else None, is_apart=first.is_apart)

    def _combined(self, node: NodeDef, inputs: Sequence[Value]) -> Meaning:
        combine = Partial(_COMBINES.get(node.op, ""))
        terms = [term for term in inputs if isinstance(term, Meaning)]
        covered: frozenset[int] = frozenset()
        for term in terms:
            alike = Meaning(terms[0].tensor, combine, term.shards, rows=terms[0].rows)
            if term != alike or covered & term.shards:
                raise self._wrong(node)
            covered |= term.shards
        is_count_right = node.op != "AddN" or node.attr["N"].i == len(inputs)
        if len(terms) < len(inputs) or not is_count_right:
            raise self._wrong(node)
        if len(covered) < len(self._sizes):
            return Meaning(terms[0].tensor, combine, covered, rows=terms[0].rows)
        self.found["sum"].add((terms[0].tensor, None))
        return Meaning(terms[0].tensor, rows=terms[0].rows)

    def _cut(self, node: NodeDef, inputs: Sequence[Value]) -> list[Meaning]:
        whole, sizes, axis = inputs
        assert isinstance(whole, Meaning)
        shape = self._whole_of(whole.tensor).shape
        if shape is None or not isinstance(sizes, np.ndarray) or not isinstance(axis, np.ndarray):
            raise self._wrong(node)
        inner = int(sizes[0]) // self._sizes[0] if sizes.size else 0
        wanted = [size * inner for size in self._sizes]
        if list(sizes) != wanted or node.attr["num_split"].i != len(wanted) or inner < 1:
            raise self._wrong(node)
        if whole.is_apart and isinstance(whole.state, Sharded) and not whole.shards:
            state = dataclasses.replace(whole.state, inner=inner)
            at = state.axis + 1
        elif whole == Meaning(whole.tensor):
            state, at = Sharded(int(axis), 1, inner), int(axis)
        else:
            raise self._wrong(node)
        if not _is(axis, at) or not 0 <= state.axis < len(shape):
            raise self._wrong(node)
        if shape[state.axis] != state.size(sum(self._sizes)):
            raise self._wrong(node)
        self.found["cut"].add((whole.tensor, state))
        return [
            Meaning(whole.tensor, state, frozenset({shard}), whole.is_apart)
            for shard in range(len(wanted))
        ]

    def _blocks(self, node: NodeDef, inputs: Sequence[Value]) -> list[Meaning]:
        """Blocks of rows of a whole tensor, or of a term of one."""
        given, sizes, axis = inputs
        assert isinstance(given, Meaning)
        shape = self._whole_of(given.tensor).shape
        is_cut = isinstance(given.state, Sharded) or given.is_apart or given.is_unweighted
        if is_cut or not shape or isinstance(sizes, Meaning) or not _is(axis, 0):
            raise self._wrong(node)
        ends = [0, *np.cumsum(sizes).tolist()]
        if ends[-1] != shape[0] or sizes.min() < 1 or node.attr["num_split"].i != len(sizes):
            raise self._wrong(node)
        return [given._replace(rows=rows) for rows in itertools.pairwise(ends)]

    def _put_together(self, node: NodeDef, inputs: Sequence[Value]) -> Meaning:
        """All rows again, of their blocks in order."""
        *blocks, axis = inputs
        assert isinstance(inputs[0], Meaning)
        whole = inputs[0]._replace(rows=None)
        end, shape = 0, self._whole_of(whole.tensor).shape
        for block in blocks:
            rows = block.rows if isinstance(block, Meaning) else None
            if not rows or rows[0] != end or block != whole._replace(rows=rows):
                raise self._wrong(node)
            end = rows[1]
        if not shape or end != shape[0] or not _is(axis, 0) or node.attr["N"].i != len(blocks):
            raise self._wrong(node)
        return whole

    def _reshaped(self, node: NodeDef, inputs: Sequence[Value]) -> Meaning:
        """Takes the blocks outside of the batch apart, or puts them together again."""
        given, to = inputs
        assert isinstance(given, Meaning)
        whole = self._whole_of(given.tensor).shape
        if whole is None or not isinstance(to, np.ndarray) or given.is_unweighted:
            raise self._wrong(node)
        shape, state = tuple(int(size) for size in to), given.state
        own = whole
        if given.shards:
            own = self.shape(given._replace(is_apart=False))
        if given.is_apart:
            if not _fits(shape, own):
                raise self._wrong(node)
            return Meaning(given.tensor, state if given.shards else None, given.shards)
        axes = [state.axis] if isinstance(state, Sharded) else range(len(own) * (state is None))
        axis = next((each for each in axes if _in_blocks(shape, own, each)), None)
        if axis is None or whole[axis] % shape[axis]:
            raise self._wrong(node)
        found = state if isinstance(state, Sharded) else Sharded(axis, shape[axis])
        if found.outer != shape[axis]:
            raise self._wrong(node)
        return Meaning(given.tensor, found, given.shards, is_apart=True)

    def _weighted(self, node: NodeDef, inputs: Sequence[Value]) -> Meaning:
        given, share = inputs
        assert isinstance(given, Meaning)
        (shard,) = given.shards
        exact = self._sizes[shard] / sum(self._sizes)
        if node.op != "Mul" or not isinstance(share, np.ndarray) or share.shape:
            raise self._wrong(node)
        if share != np.asarray(exact).astype(share.dtype) or given.state != SUM:
            raise self._wrong(node)
        self.exact[node.input[1].partition(":")[0]] = exact
        return given._replace(is_unweighted=False)


def _is(value: Value, wanted: int) -> bool:
    return isinstance(value, np.ndarray) and value.shape == () and int(value) == wanted


def _fits(shape: Shape, wanted: Shape) -> bool:
    """Whether a shape is the wanted one, or leaves one size to TensorFlow."""
    alike = len(shape) == len(wanted) and shape.count(-1) <= 1
    return alike and all(size in (each, -1) for size, each in zip(shape, wanted, strict=True))


def _in_blocks(shape: Shape, wanted: Shape, axis: int) -> bool:
    """Whether a shape is the wanted one with several blocks along an axis apart."""
    outer = shape[axis] if axis < len(shape) else 0
    apart = (*wanted[:axis], outer, wanted[axis] // max(outer, 1), *wanted[axis + 1 :])
    return outer > 1 and wanted[axis] % outer == 0 and _fits(shape, apart)
