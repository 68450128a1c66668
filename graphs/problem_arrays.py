"""The arrays of a placement problem, and what is wrong with those of a file.

The contract (`tfplace/docs/contract.md`), section 6, lists them. A file may come from anywhere, so
every figure is checked before a simulation sees it, and before a cast could change it.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from graphs.errors import ModelError, PlacementError
from graphs.host.text_table import table_rows
from graphs.op_graph import SHAPE_DIMS

Kind = tuple[str, tuple[str | int, ...]]
"""dtype and dimensions: N ops, T tensors, U uses, D devices, K turns; a number is itself."""


def _table(which: str) -> Mapping[str, Kind]:
    """{array: its kind} of one table of problem_arrays.txt."""
    own = [row[1:] for row in table_rows(__file__) if row[0] == which]
    return {
        name: (dtype, tuple(int(each) if each.isdigit() else each for each in dims))
        for name, dtype, *dims in own
    }


ARRAYS = _table("arrays")
EXTRAS = _table("extras")
"""Not in the contract's list; a file of another program need not have them."""
EXECUTOR, CONTENTION, TURN = map(_table, ("executor", "contention", "turn"))
"""Problem.executor: all three or none; both or none; each may be absent."""
# Where an array of the last three tables lies in Problem.executor.
EXECUTOR_FIELDS: Mapping[str, str] = {
    **{name: name for name in (*EXECUTOR, *CONTENTION, *TURN)},
    "op_runs_inline": "runs_inline",
}


def checked_arrays(path: str, raw: "Arrays") -> dict[str, np.ndarray]:
    """The arrays with the dtypes and shapes of the contract; extras filled in.

    Raises:
      ModelError: an array is missing, of another dtype or shape, or holds what makes no sense.
      PlacementError: the placement names devices that do not exist.
    """
    missing = [name for name in ARRAYS if name not in raw]
    if missing:
        raise ModelError(
            f"reading the problem {path}: it lacks {', '.join(missing)}; write it with "
            f"--dump_problem, or as {SECTION}, lists the arrays"
        )
    sizes = _sizes(path, raw)
    executor = _executor_tables(path, raw)
    arrays = {name: _checked(path, name, raw[name], ARRAYS[name], sizes) for name in ARRAYS}
    given = {**_default_extras(arrays, sizes), **raw}
    more = {**EXTRAS, **executor}
    arrays |= {name: _checked(path, name, given[name], more[name], sizes) for name in more}
    _check_indices(path, arrays, {**sizes, "channels": 2 * sizes["D"] ** 2})
    _check_order(path, arrays)
    _check_names(path, arrays)
    _check_numbers(path, arrays)
    _check_bytes(path, arrays)
    return arrays


def _sizes(path: str, raw: "Arrays") -> dict[str, int]:
    sizes = {
        "N": np.size(raw["op_names"]),
        "T": np.size(raw["tensor_producer"]),
        "U": np.size(raw["use_tensor"]),
        "D": np.size(raw["device_names"]),
        "K": max(len(np.atleast_1d(raw.get("op_turn", 0))), 1),
    }
    for letter, name, noun in (("N", "op_names", "op"), ("D", "device_names", "device")):
        if not sizes[letter]:
            raise ModelError(
                f"reading the problem {path}: {name} is empty; wanted at least one {noun}"
            )
    return sizes


def _executor_tables(path: str, raw: "Arrays") -> dict[str, Kind]:
    """What there has to be of an executor, beside what is there of it."""
    contention = CONTENTION if any(name in raw for name in CONTENTION) else {}
    executor = {**EXECUTOR, **contention}
    present = [name for name in (*executor, *TURN) if name in raw]
    executor = executor if present else {}
    lacking = [name for name in executor if name not in raw]
    if lacking:
        raise ModelError(
            f"reading the problem {path}: it has {', '.join(present)} but "
            f"lacks {', '.join(lacking)}; wanted all or none of {', '.join(executor)}"
        )
    return {**executor, **{name: TURN[name] for name in TURN if name in raw}}


def _checked(
    path: str, name: str, array: np.ndarray, wanted: Kind, sizes: Mapping[str, int]
) -> np.ndarray:
    """An array of the contract's dtype; nothing is lost in the cast."""
    dtype, dimensions = wanted
    shape = tuple(x if isinstance(x, int) else sizes[x] for x in dimensions)
    kinds = {"U": "US", "f": "fiu", "i": "iu", "b": "b"}[dtype[0]]
    if array.shape != shape or array.dtype.kind not in kinds:
        raise ModelError(
            f"reading the problem {path}: {name} is {array.dtype}{list(array.shape)}, "
            f"wanted {dtype}{list(shape)} ({SECTION})"
        )
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "replace")
    if dtype[0] == "i" and array.size:
        most = np.iinfo(dtype).max
        if not -most <= int(array.min()) <= int(array.max()) <= most:
            raise ModelError(
                f"reading the problem {path}: {name} has values from {array.min()} to "
                f"{array.max()}, wanted none beyond {most} ({dtype}; {SECTION})"
            )
    kind = np.str_ if dtype == "U" else np.dtype(dtype)
    return np.ascontiguousarray(array.astype(kind)).reshape(shape)


def _default_extras(arrays: "Arrays", sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """What a file without extras means: outputs in tensor order, shapes unknown."""
    names = np.char.upper(arrays["device_names"])
    seen: dict[int, int] = {}
    output = np.empty(sizes["T"], dtype=np.int32)
    for tensor, op in enumerate(arrays["tensor_producer"].tolist()):
        output[tensor] = seen.get(op, 0)
        seen[op] = seen.get(op, 0) + 1
    return {
        "device_types": np.where(np.char.find(names, "GPU") >= 0, "GPU", "CPU"),
        "communication": np.array("unnamed"),
        "tensor_output": output,
        "tensor_shape": np.full((sizes["T"], SHAPE_DIMS), -1, dtype=np.int32),
        "tensor_shares": np.full(sizes["T"], -1, dtype=np.int32),
        "tensor_takes_over": np.zeros(sizes["T"], dtype=bool),
    }


SECTION = "tfplace/docs/contract.md, section 6"
MOST_SECONDS = 1e15
"""Of an op, a latency, a send: sums of 100,000s of them are still finite."""
MOST_BYTES = 2.0**62
"""Of all tensors on all devices together: peaks are sums of 64 bits."""

Arrays = Mapping[str, np.ndarray]

# Values that an index array may take: (from, the dimension below which it stays).
_INDEX_RANGES: Mapping[str, tuple[int, str]] = {
    "tensor_producer": (0, "N"),
    "tensor_shares": (-1, "T"),
    "use_tensor": (0, "T"),
    "use_op": (0, "N"),
    "colocation_group": (-1, "N"),
    "pinned_device": (-1, "D"),
    "op_turn": (0, "N"),
    "link_channels": (-1, "channels"),
}


def _check_indices(path: str, arrays: Arrays, sizes: Mapping[str, int]) -> None:
    """Ops, tensors and devices that exist."""
    for name, (least, dimension) in _INDEX_RANGES.items():
        if name not in arrays or not arrays[name].size:
            continue
        low, high = int(arrays[name].min()), int(arrays[name].max())
        if low < least or high >= max(sizes[dimension], 1):
            raise ModelError(
                f"reading the problem {path}: {name} has values from {low} to {high}, wanted "
                f"{least} to {sizes[dimension] - 1}"
            )
    placement = arrays["placement"]
    if not 0 <= placement.min() <= placement.max() < sizes["D"]:
        raise PlacementError(
            f"reading the problem {path}: placement has devices {placement.min()} to "
            f"{placement.max()}, but there are 0 to {sizes['D'] - 1}"
        )


def _check_order(path: str, arrays: Arrays) -> None:
    """Uses go forward, each pair once; an executor's orders hold every op once."""
    use_tensor, use_op = arrays["use_tensor"].astype(np.int64), arrays["use_op"]
    producer = arrays["tensor_producer"]
    backward = np.flatnonzero(producer[use_tensor] >= use_op)
    if len(backward):
        user, maker = int(use_op[backward[0]]), int(producer[use_tensor[backward[0]]])
        raise ModelError(
            f"reading the problem {path}: op {user} uses a tensor of op {maker}, which does not "
            f"come before it; {SECTION}, wants ops in a topological order"
        )
    pairs = use_tensor * len(arrays["op_names"]) + use_op
    if len(np.unique(pairs)) != len(pairs):
        raise ModelError(
            f"reading the problem {path}: a pair of use_tensor and use_op comes twice; "
            f"{SECTION}, wants distinct pairs"
        )
    shares = arrays["tensor_shares"]
    which = np.flatnonzero(shares >= 0)
    source, own = shares[which], shares[shares[which]]
    is_beside = (producer[source] == producer[which]) & (source < which)
    is_beside &= ((own < 0) | (own == source)) & ~arrays["tensor_takes_over"][which]
    is_used = np.isin(source.astype(np.int64) * len(arrays["op_names"]) + producer[which], pairs)
    if len(which := which[~(is_used | is_beside | (source == which))]):
        raise ModelError(
            f"reading the problem {path}: tensor_shares names for tensor {which[0]} one whose "
            f"buffer its producer can't hand on; {SECTION}, wants one that the producer uses"
        )
    turn = arrays.get("op_turn", np.empty((0, 0)))
    if np.any(np.sort(turn, axis=1) != np.arange(turn.shape[1])):
        raise ModelError(
            f"reading the problem {path}: a row of op_turn lacks some numbers; {SECTION}, wants "
            f"each from 0 to {turn.shape[1] - 1} once"
        )


def _check_names(path: str, arrays: Arrays) -> None:
    """Placement files and reports name ops and devices; placers know CPUs and what is a GPU."""
    if unknown := set(arrays["device_types"].tolist()) - {"CPU", "GPU"}:
        raise ModelError(
            f"reading the problem {path}: device_types has {min(unknown)!r}; wanted 'GPU' or 'CPU' "
            "for each device: what ops are sped up by is a GPU here"
        )
    for name in ("op_names", "device_names"):
        values, counts = np.unique(arrays[name], return_counts=True)
        if counts.max() > 1:
            raise ModelError(
                f"reading the problem {path}: {name} has {str(values[counts.argmax()])!r} "
                f"{counts.max()} times; wanted each name once"
            )


def _check_numbers(path: str, arrays: Arrays) -> None:
    """Quantities that a simulation can't do with."""
    apart = ~np.eye(len(arrays["device_names"]), dtype=bool)
    latency = arrays["link_latency"][apart]
    finite_latency = _are_seconds(latency) and np.all(np.isfinite(latency))
    wanted: Sequence[tuple[str, object, str]] = (
        (
            "op_seconds",
            _are_seconds(arrays["op_seconds"]),
            f"numbers from 0 to {MOST_SECONDS:g}, or inf",
        ),
        ("device_slots", np.all(arrays["device_slots"] >= 1), "at least 1"),
        ("link_latency", finite_latency, f"finite numbers from 0 to {MOST_SECONDS:g}"),
        (
            "link_bytes_per_second",
            np.all(arrays["link_bytes_per_second"][apart] > 0),
            "more than 0",
        ),
        ("memory_reserve", 0 <= arrays["memory_reserve"] < 1, "from 0 to below 1"),
    )
    works = [
        (
            name,
            _are_seconds(arrays[name]) and np.all(np.isfinite(arrays[name])),
            f"finite numbers from 0 to {MOST_SECONDS:g}",
        )
        for name in ("send_seconds", "receive_seconds", "op_slowdown")
        if name in arrays
    ]
    for name, holds, words in (*wanted, *works):
        if not holds:
            raise ModelError(f"reading the problem {path}: {name} has to be {words}")


def _are_seconds(values: np.ndarray) -> bool:
    return bool(np.all((values >= 0) & ((values <= MOST_SECONDS) | np.isinf(values))))


def _check_bytes(path: str, arrays: Arrays) -> None:
    """No negative bytes, and no sum of them that 64 bits don't hold."""
    total = 0.0
    copies = {"tensor_bytes": len(arrays["device_names"])}
    for name in sorted(name for name in arrays if name.endswith("_bytes")):
        if np.any(arrays[name] < 0):
            raise ModelError(
                f"reading the problem {path}: {name} has {arrays[name].min()}; wanted bytes, at "
                "least 0"
            )
        if name != "device_memory_bytes":
            total += float(arrays[name].sum(dtype=np.float64)) * copies.get(name, 1)
    if total > MOST_BYTES:
        raise ModelError(
            f"reading the problem {path}: its tensors and variables take {total:.3g} bytes, copies "
            f"on every device counted; wanted at most {MOST_BYTES:.3g}"
        )
