"""What a tensor of a split step can be: whole, sharded, or partial."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Whole:
    """One tensor, as in the unsplit step."""


@dataclasses.dataclass(frozen=True)
class Sharded:
    """One part per shard, cut along one axis.

    The batch may be only a factor of that axis: of a merged dimension [T, B, k] -> [T * B * k] it
    is the middle one, with outer = T and inner = k. Part m then holds, for each of the `outer`
    blocks, its own n_m * inner elements.

    Attributes:
      axis: which dimension; never negative.
      outer: how many blocks lie outside of the batch in this dimension.
      inner: how many elements lie inside of one batch entry in this dimension.
      is_any: whether `inner` is what it is at one size of what else is open, and another number in
        other runs; only where outer is 1.
    """

    axis: int
    outer: int = 1
    inner: int = 1
    is_any: bool = dataclasses.field(default=False, compare=False)

    def size(self, batch: int) -> int:
        """The size of the dimension in the tensor, or in a part that has `batch` entries."""
        return self.outer * batch * self.inner

    def blocks_of(self, shape: tuple[int, ...] | None, batch: int) -> "Sharded | None":
        """How a tensor is cut that has some blocks of this one; None where it has none."""
        unit = batch * self.inner
        size = 0 if shape is None or self.axis >= len(shape) else shape[self.axis]
        return dataclasses.replace(self, outer=size // unit) if size > 0 == size % unit else None


@dataclasses.dataclass(frozen=True)
class Partial:
    """One term per shard, each of the whole's shape; the value is what they combine to.

    Attributes:
      combine: "sum", "max", "min", "prod", "all" or "any".
    """

    combine: str = "sum"


@dataclasses.dataclass(frozen=True)
class Listed:
    """A TensorList in copies, one per shard, that hold the parts of its elements.

    Attributes:
      element: how each element is cut; None as long as nothing was put in that is cut.
      roots: the ops that made the list, or lists that were joined to it; see ListElements.
    """

    element: Sharded | None
    roots: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)


@dataclasses.dataclass(frozen=True)
class Optioned:
    """An Optional in copies, one per shard, that hold the shard's part of what it holds.

    Attributes:
      held: the state of what it holds; None where that depends on which branch of a conditional
        made it.
      roots: as of a list.
    """

    held: "Whole | Sharded | Partial | Listed | Optioned | None"
    roots: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)


Place = tuple[int, int]
"""Of a shard: its host and its device, each numbered from 0."""
State = Whole | Sharded | Partial | Listed | Optioned
WHOLE = Whole()
SUM = Partial()


def shard_sizes(batch: int, num_shards: int) -> tuple[int, ...]:
    """How many entries of the batch each shard gets: they differ by at most one, larger first."""
    return tuple(batch // num_shards + (m < batch % num_shards) for m in range(num_shards))


def seen_twice(one: State, two: State) -> State:
    """The first state, of any number inside of an entry where the second has another one."""
    if not isinstance(one, Sharded) or not isinstance(two, Sharded) or one.outer > 1:
        return one
    is_any = one != two == dataclasses.replace(one, inner=two.inner)
    return dataclasses.replace(one, is_any=one.is_any or is_any)


def is_same(one: State, two: State) -> bool:
    """Whether a state is the first one, as that says of other sizes."""
    if isinstance(one, Sharded) and isinstance(two, Sharded) and one.is_any:
        return dataclasses.replace(one, inner=two.inner) == two
    return one == two


def can_be_cut(shape: tuple[int, ...] | None, state: State, batch: int) -> bool:
    """Whether a whole tensor of this shape has the parts that a state says, or is none's sum."""
    if not isinstance(state, Sharded):
        return True
    return shape is not None and state.axis < len(shape) and shape[state.axis] == state.size(batch)
