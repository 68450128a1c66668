"""placement.json: {"op/path": "/device:GPU:1", ...}."""

import json
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from graphs.devices_asked import named_device
from graphs.errors import PlacementError
from graphs.host.did_you_mean import did_you_mean_file, nearest
from graphs.host.whole_file import read_text
from graphs.op_graph import FloatArray, IntArray, OpGraph
from graphs.protos import Json

_SHARD = "shard_"
"""The copy of `a/b` for shard m is `a/b/shard_m` (the contract, section 9)."""

_LATER_SUM = re.compile(r"/summed(_\d+)?(/shard_\d+)?_+$")
"""The second sum of terms that are added one after another, and those after it."""


def read_placement(
    path: str, op_names: Sequence[str], device_names: Sequence[str], default: IntArray
) -> IntArray:
    """Reads a placement file; ops that it doesn't name keep their device in `default`.

    Args:
      op_names: [N].
      device_names: [D].
      default: i4[N].

    Returns:
      i4[N].

    Raises:
      PlacementError: no such file, no JSON object of strings, or unknown ops or devices.
    """
    entries = _read_entries(path)
    index = {name: i for i, name in enumerate(op_names)}
    device_index: dict[str, int] = {}
    result = np.array(default, dtype=np.int32)
    for op, device in entries.items():
        if op not in index:
            raise PlacementError(
                f"reading the placement {path}: the model's run has no op {op!r}"
                f"{nearest(op, op_names)}; {_remedy(op, entries, index)}"
            )
        if device not in device_index:
            try:
                device_index[device] = named_device(device, device_names)
            except LookupError as error:
                raise PlacementError(
                    f"reading the placement {path}: op {op!r} is put on {device!r}: {error}"
                ) from None
        result[index[op]] = device_index[device]
    return result


def beside_others(device_of_op: IntArray, graph: OpGraph, op_seconds: FloatArray) -> IntArray:
    """Puts each op without a device (-1) where it has to lie, or else beside its busiest neighbour.

    An op that does nothing but wait is told last what the device with most work does.

    Args:
      device_of_op: i4[N].
      op_seconds: f8[N, D].

    Returns:
      i4[N]; 0 for an op that is beside none which has a device.
    """
    result = device_of_op.copy()
    maker, user = graph.tensor_producer[graph.use_tensor], graph.use_op
    placed = np.flatnonzero(result >= 0)
    seconds = np.nan_to_num(op_seconds[placed, result[placed]], posinf=0.0)
    work = np.bincount(result[placed], seconds, minlength=op_seconds.shape[1])
    for op in np.flatnonzero(result < 0).tolist():
        group = graph.colocation_group[op]
        mates = np.flatnonzero((graph.colocation_group == group) & (group >= 0))
        neighbours = np.append(maker[user == op], user[maker == op])
        for others in (result[mates], result[neighbours], np.zeros(1, np.int32)):
            if len(beside := others[others >= 0]):
                result[op] = beside[np.argmax(work[beside])]
                break
    return result


def ops_left_whole(path: str) -> frozenset[str]:
    """The ops of a split step's placement that have one device, not one for each copy.

    A step that could be split further is so split as it was when the file was written. No op where
    a file names no copies, which is an unsplit step's.

    Raises:
      PlacementError: no such file, or no JSON object of strings.
    """
    names = _read_entries(path)
    copies = {name for name in names if f"/{_SHARD}" in name}
    originals = {name.partition(f"/{_SHARD}")[0] for name in copies}
    return frozenset(names.keys() - copies - originals) if copies else frozenset()


def sums_in_turn(path: str) -> bool:
    """Whether the terms of a split step's sums are added one after another, as a file names them.

    Raises:
      PlacementError: no such file, or no JSON object of strings.
    """
    return any(map(_LATER_SUM.search, _read_entries(path)))


def placement_text(path: str, num_ops: int) -> str:
    """What a person is told of a placement file that was read: also how much it leaves open."""
    num_named = len(_read_entries(path))
    if num_named == num_ops:
        return path
    return f"{path}: {num_named:,} of {num_ops:,} ops; the others lie as the model came"


def _remedy(op: str, named: Collection[str], known: Collection[str]) -> str:
    """What to do about an op that the run lacks: it may be of a step split otherwise."""
    if f"{op}/{_SHARD}0" in known:
        return f"the step is split: name the op's copies, {op}/{_SHARD}0 and so on, or leave it out"
    originals = {name.partition(f"/{_SHARD}")[0] for name in named if f"/{_SHARD}" in name}
    if any(each in known or f"{each}/{_SHARD}0" in known for each in originals):
        return (
            "it is of a step that is split otherwise: give the --shards and --order that it was "
            "written with"
        )
    return "write a fresh file with `tfplace optimize`"


def _unique_keys(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    entries: dict[str, Json] = {}
    for key, value in pairs:
        if key in entries:
            raise ValueError(f"{key!r} stands there twice")
        entries[key] = value
    return entries


def _read_entries(path: str) -> Mapping[str, str]:
    try:
        value = json.loads(read_text(path), object_pairs_hook=_unique_keys)
    except FileNotFoundError:
        raise PlacementError(
            f"reading the placement {path}: there is no such file; `tfplace optimize` writes "
            f"one as assets.extra/tfplace/placement.json{did_you_mean_file(path)}"
        ) from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or f"not a JSON file ({error})"
        raise PlacementError(
            f'reading the placement {path}: {why}; wanted {{"op": "/device:GPU:0", ...}}'
        ) from None
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise PlacementError(
            f'reading the placement {path}: wanted one JSON object {{"op": "device", ...}} '
            "with strings as values"
        )
    return value
