"""The .npz of a placement problem: exactly what the simulator saw.

The contract (`tfplace/docs/contract.md`), section 6, lists the arrays.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from graphs.errors import ModelError, OutputError, PlacementError
from graphs.executor_model import ExecutorModel
from graphs.op_graph import SHAPE_DIMS, IntArray, OpGraph
from graphs.problem import Problem

# Name: (dtype, dimensions). N ops, T tensors, U uses, D devices; a number is itself.
_ARRAYS: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
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
_EXTRAS: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    "device_types": ("U", ("D",)),
    "communication": ("U", ()),
    "tensor_output": ("i4", ("T",)),
    "tensor_shape": ("i4", ("T", SHAPE_DIMS)),
}
# Problem.executor: all three or none.
_EXECUTOR: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    "send_seconds": ("f8", ("D", "D", 2)),
    "receive_seconds": ("f8", ("D", "D", 2)),
    "op_runs_inline": ("b1", ("N",)),
}
# Problem.executor's, both or none.
_CONTENTION: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    "op_slowdown": ("f8", ("N", "D")),
    "shares_memory": ("b1", ("D", "D")),
}
# Problem.executor's, may be absent.
_TURN: Mapping[str, tuple[str, tuple[str | int, ...]]] = {"op_turn": ("i4", ("K", "N"))}
# Where an array of the last three tables lies in Problem.executor.
_EXECUTOR_FIELDS: Mapping[str, str] = {
    **{name: name for name in (*_EXECUTOR, *_CONTENTION, *_TURN)},
    "op_runs_inline": "runs_inline",
}
# Values that an index array may take: (from, the dimension below which it stays).
_INDEX_RANGES: Mapping[str, tuple[int, str]] = {
    "tensor_producer": (0, "N"),
    "use_tensor": (0, "T"),
    "use_op": (0, "N"),
    "colocation_group": (-1, "N"),
    "pinned_device": (-1, "D"),
    "op_turn": (0, "N"),
}


def write_problem(path: str | IO[bytes], problem: Problem, device_of_op: IntArray) -> None:
    """Writes a problem and a placement of it as .npz, to exactly this path.

    Args:
      path: the file, or an open one.
      problem: what the simulator saw.
      device_of_op: i4[N] the best placement found.
    """
    graph = problem.graph
    values: dict[str, Any] = {
        name: getattr(graph, name, getattr(problem, name, None)) for name in {**_ARRAYS, **_EXTRAS}
    }
    values["placement"] = device_of_op
    arrays = {
        name: np.asarray(values[name], dtype=np.str_ if dtype == "U" else dtype)
        for name, (dtype, _) in {**_ARRAYS, **_EXTRAS}.items()
    }
    if problem.executor is not None:
        for name, field in _EXECUTOR_FIELDS.items():
            if (array := getattr(problem.executor, field)) is not None:
                arrays[name] = array
    if not isinstance(path, str):
        np.savez_compressed(path, allow_pickle=False, **arrays)
        return
    # An open file, because numpy appends .npz to a name that doesn't end with it.
    try:
        with open(path, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise OutputError(
            f"writing the problem to {path}: {error.strerror}; give another --dump_problem"
        ) from None


def read_problem(path: str) -> tuple[Problem, IntArray]:
    """Reads what `write_problem`, or another program after the contract, section 6, wrote.

    Tensors are sorted by producer and uses by (tensor, op); neither changes any makespan.

    Returns:
      The problem, and the placement i4[N].

    Raises:
      ModelError: no such file, no .npz, or an array is missing, misshapen or out of range.
      PlacementError: the placement names devices that do not exist.
    """
    arrays = _checked_arrays(path, _load(path))
    _check_values(path, arrays)
    order = np.argsort(arrays["tensor_producer"], kind="stable")
    new_index = np.empty_like(order)
    new_index[order] = np.arange(len(order))
    use_tensor = new_index[arrays["use_tensor"]].astype(np.int32)
    by_tensor = np.lexsort((arrays["use_op"], use_tensor))
    graph = OpGraph(
        op_names=arrays["op_names"].tolist(),
        op_types=arrays["op_types"].tolist(),
        tensor_producer=arrays["tensor_producer"][order],
        tensor_output=arrays["tensor_output"][order],
        tensor_bytes=arrays["tensor_bytes"][order],
        tensor_alloc_bytes=arrays["tensor_alloc_bytes"][order],
        tensor_shape=arrays["tensor_shape"][order],
        use_tensor=use_tensor[by_tensor],
        use_op=arrays["use_op"][by_tensor],
        op_persistent_bytes=arrays["op_persistent_bytes"],
        op_temp_bytes=arrays["op_temp_bytes"],
        colocation_group=arrays["colocation_group"],
    )
    return _problem(graph, arrays), arrays["placement"]


def _problem(graph: OpGraph, arrays: Mapping[str, np.ndarray]) -> Problem:
    return Problem(
        graph=graph,
        op_seconds=arrays["op_seconds"],
        pinned_device=arrays["pinned_device"],
        device_names=tuple(arrays["device_names"].tolist()),
        device_types=tuple(arrays["device_types"].tolist()),
        device_slots=arrays["device_slots"],
        device_memory_bytes=arrays["device_memory_bytes"],
        link_latency=arrays["link_latency"],
        link_bytes_per_second=arrays["link_bytes_per_second"],
        link_channels=arrays["link_channels"],
        memory_reserve=float(arrays["memory_reserve"]),
        communication=str(arrays["communication"]),
        executor=_executor(arrays),
    )


def _executor(arrays: Mapping[str, np.ndarray]) -> ExecutorModel | None:
    if "send_seconds" not in arrays:
        return None
    fields: dict[str, Any] = {field: arrays.get(name) for name, field in _EXECUTOR_FIELDS.items()}
    return ExecutorModel(**fields)


def _load(path: str) -> dict[str, np.ndarray]:
    """All arrays of an .npz; pickles are refused."""
    if not Path(path).is_file():
        raise ModelError(f"reading the problem {path}: there is no such file")
    try:
        with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"reading the problem {path}: wanted an .npz without pickles, as --dump_problem "
            f"writes it, but {error}"
        ) from error


def _checked_arrays(path: str, raw: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays with the dtypes and shapes of the contract; extras filled in."""
    missing = [name for name in _ARRAYS if name not in raw]
    if missing:
        raise ModelError(
            f"reading the problem {path}: it lacks {', '.join(missing)}; write it with "
            "--dump_problem, or as tfplace/docs/contract.md, section 6, lists the arrays"
        )
    sizes = {
        "N": np.size(raw["op_names"]),
        "T": np.size(raw["tensor_producer"]),
        "U": np.size(raw["use_tensor"]),
        "D": np.size(raw["device_names"]),
        "K": max(len(np.atleast_1d(raw.get("op_turn", 0))), 1),
    }
    arrays = {**_default_extras(raw, sizes), **raw}
    checked = {}
    contention = _CONTENTION if any(name in raw for name in _CONTENTION) else {}
    executor = {**_EXECUTOR, **contention}
    executor = executor if any(name in raw for name in executor) else {}
    turn = _TURN if executor and "op_turn" in raw else {}
    lacking = [name for name in executor if name not in raw]
    present = [name for name in executor if name in raw]
    if lacking:
        raise ModelError(
            f"reading the problem {path}: it has {', '.join(present)} but "
            f"lacks {', '.join(lacking)}; wanted all or none of {', '.join(executor)}"
        )
    for name, (dtype, dimensions) in {**_ARRAYS, **_EXTRAS, **executor, **turn}.items():
        shape = tuple(x if isinstance(x, int) else sizes[x] for x in dimensions)
        kind = np.str_ if dtype == "U" else np.dtype(dtype)
        array = arrays[name]
        if array.shape != shape or not np.can_cast(array.dtype, kind, "same_kind"):
            raise ModelError(
                f"reading the problem {path}: {name} is {array.dtype}{list(array.shape)}, "
                f"wanted {dtype}{list(shape)} (tfplace/docs/contract.md, section 6)"
            )
        checked[name] = array.astype(kind)
    return checked


def _default_extras(
    raw: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """What a file without extras means: outputs in tensor order, shapes unknown."""
    names = np.char.upper(raw["device_names"].astype(np.str_))
    producer = raw["tensor_producer"].ravel()
    seen: dict[int, int] = {}
    output = np.empty(sizes["T"], dtype=np.int32)
    for tensor, op in enumerate(producer.tolist()):
        output[tensor] = seen.get(op, 0)
        seen[op] = seen.get(op, 0) + 1
    return {
        "device_types": np.where(np.char.find(names, "GPU") >= 0, "GPU", "CPU"),
        "communication": np.array("unnamed"),
        "tensor_output": output,
        "tensor_shape": np.full((sizes["T"], SHAPE_DIMS), -1, dtype=np.int32),
    }


def _check_values(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Ranges and order."""
    sizes = {
        "N": len(arrays["op_names"]),
        "T": len(arrays["tensor_producer"]),
        "D": len(arrays["device_names"]),
    }
    for name, (least, dimension) in _INDEX_RANGES.items():
        if name not in arrays:
            continue
        if arrays[name].size and not least <= arrays[name].min() <= arrays[name].max() < max(
            sizes[dimension], 1
        ):
            raise ModelError(
                f"reading the problem {path}: {name} has values from {arrays[name].min()} to "
                f"{arrays[name].max()}, wanted {least} to {sizes[dimension] - 1}"
            )
    if np.any(arrays["tensor_producer"][arrays["use_tensor"]] >= arrays["use_op"]):
        raise ModelError(
            f"reading the problem {path}: an op uses a tensor of an op that does not come before "
            "it; tfplace/docs/contract.md, section 6, wants ops in a topological order"
        )
    pairs = np.stack([arrays["use_tensor"], arrays["use_op"]])
    if np.unique(pairs, axis=1).shape != pairs.shape:
        raise ModelError(
            f"reading the problem {path}: a pair of use_tensor and use_op comes twice; "
            "tfplace/docs/contract.md, section 6, wants distinct pairs"
        )
    _check_numbers(path, arrays)
    placement = arrays["placement"]
    if placement.size and not 0 <= placement.min() <= placement.max() < sizes["D"]:
        raise PlacementError(
            f"reading the problem {path}: placement has devices {placement.min()} to "
            f"{placement.max()}, but there are 0 to {sizes['D'] - 1}"
        )


def _check_numbers(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Quantities that a simulation can't do with."""
    apart = ~np.eye(len(arrays["device_names"]), dtype=bool)
    wanted = (
        ("op_seconds", np.all(arrays["op_seconds"] >= 0), "numbers from 0 to inf"),
        ("device_slots", np.all(arrays["device_slots"] >= 1), "at least 1"),
        ("link_latency", np.all(arrays["link_latency"][apart] >= 0), "at least 0"),
        (
            "link_bytes_per_second",
            np.all(arrays["link_bytes_per_second"][apart] > 0),
            "more than 0",
        ),
        ("link_channels", np.all(arrays["link_channels"] >= -1), "at least -1"),
        ("memory_reserve", 0 <= arrays["memory_reserve"] < 1, "from 0 to below 1"),
    )
    works = [
        (name, np.all((arrays[name] >= 0) & (arrays[name] < np.inf)), "finite numbers from 0")
        for name in ("send_seconds", "receive_seconds", "op_slowdown")
        if name in arrays
    ]
    for name, holds, words in (*wanted, *works):
        if not holds:
            raise ModelError(f"reading the problem {path}: {name} has to be {words}")
