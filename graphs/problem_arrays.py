"""The arrays of a placement problem, and what is wrong with those of a file.

The contract (`tfplace/docs/contract.md`), section 6, lists them. A file may come from anywhere, so
every figure is checked before a simulation sees it, and before a cast could change it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphs.errors import ModelError
from graphs.op_graph import SHAPE_DIMS
from graphs.problem_values import SECTION, Arrays, check_values

# Name: (dtype, dimensions). N ops, T tensors, U uses, D devices; a number is itself.
ARRAYS: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    "op_names": ("U", ("N",)),
    "op_types": ("U", ("N",)),
    "op_seconds": ("f8", ("N", "D")),
    "tensor_producer": ("i4", ("T",)),
    "tensor_bytes": ("i8", ("T",)),
    "tensor_alloc_bytes": ("i8", ("T",)),
    "use_tensor": ("i4", ("U",)),
    "use_op": ("i4", ("U",)),
    "op_persistent_bytes": ("i8", ("N",)),
    "op_temp_bytes": ("i8", ("N",)),
    "colocation_group": ("i4", ("N",)),
    "pinned_device": ("i4", ("N",)),
    "device_names": ("U", ("D",)),
    "device_slots": ("i4", ("D",)),
    "device_memory_bytes": ("i8", ("D",)),
    "link_latency": ("f8", ("D", "D")),
    "link_bytes_per_second": ("f8", ("D", "D")),
    "link_channels": ("i4", ("D", "D", 2)),
    "placement": ("i4", ("N",)),
    "memory_reserve": ("f8", ()),
}
# Not in the contract's list; a file of another program need not have them.
EXTRAS: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    "device_types": ("U", ("D",)),
    "communication": ("U", ()),
    "tensor_output": ("i4", ("T",)),
    "tensor_shape": ("i4", ("T", SHAPE_DIMS)),
    "tensor_shares": ("i4", ("T",)),
    "tensor_takes_over": ("b1", ("T",)),
}
# Problem.executor: all three or none.
EXECUTOR: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    "send_seconds": ("f8", ("D", "D", 2)),
    "receive_seconds": ("f8", ("D", "D", 2)),
    "op_runs_inline": ("b1", ("N",)),
}
# Problem.executor's, both or none.
CONTENTION: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    "op_slowdown": ("f8", ("N", "D")),
    "shares_memory": ("b1", ("D", "D")),
}
# Problem.executor's, may be absent.
TURN: Mapping[str, tuple[str, tuple[str | int, ...]]] = {"op_turn": ("i4", ("K", "N"))}
# Where an array of the last three tables lies in Problem.executor.
EXECUTOR_FIELDS: Mapping[str, str] = {
    **{name: name for name in (*EXECUTOR, *CONTENTION, *TURN)},
    "op_runs_inline": "runs_inline",
}


def checked_arrays(path: str, raw: Arrays) -> dict[str, np.ndarray]:
    """The arrays with the dtypes and shapes of the contract; extras filled in.

    Args:
      path: of the file.
      raw: what is in it.

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
    check_values(path, arrays, sizes)
    return arrays


def _sizes(path: str, raw: Arrays) -> dict[str, int]:
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


def _executor_tables(path: str, raw: Arrays) -> dict[str, tuple[str, tuple[str | int, ...]]]:
    """What there has to be of an executor, beside what is there of it."""
    contention = CONTENTION if any(name in raw for name in CONTENTION) else {}
    executor = {**EXECUTOR, **contention}
    executor = executor if any(name in raw for name in executor) else {}
    lacking = [name for name in executor if name not in raw]
    present = [name for name in executor if name in raw]
    if lacking:
        raise ModelError(
            f"reading the problem {path}: it has {', '.join(present)} but "
            f"lacks {', '.join(lacking)}; wanted all or none of {', '.join(executor)}"
        )
    return {**executor, **(TURN if executor and "op_turn" in raw else {})}


def _checked(
    path: str,
    name: str,
    array: np.ndarray,
    wanted: tuple[str, tuple[str | int, ...]],
    sizes: Mapping[str, int],
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


def _default_extras(arrays: Arrays, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
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
