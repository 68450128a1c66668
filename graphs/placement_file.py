"""placement.json: {"op/path": "/device:GPU:1", ...}."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphs.devices_asked import named_device
from graphs.errors import PlacementError
from graphs.host.did_you_mean import did_you_mean_file, nearest
from graphs.op_graph import IntArray


def read_placement(
    path: str, op_names: Sequence[str], device_names: Sequence[str], default: IntArray
) -> IntArray:
    """Reads a placement file; ops that it doesn't name keep their device in `default`.

    Args:
      path: the file.
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
                f"{nearest(op, op_names)}; write a fresh file with `tfplace optimize`"
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


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise ValueError(f"{key!r} stands there twice")
        entries[key] = value
    return entries


def _read_entries(path: str) -> Mapping[str, str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
        value = json.loads(text, object_pairs_hook=_unique_keys)
    except FileNotFoundError:
        raise PlacementError(
            f"reading the placement {path}: there is no such file; `tfplace optimize` writes "
            f"one as assets.extra/tfplace/placement.json{did_you_mean_file(path)}"
        ) from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise PlacementError(
            f"reading the placement {path}: not a JSON file ({error}); wanted "
            '{"op": "/device:GPU:0", ...}'
        ) from None
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise PlacementError(
            f'reading the placement {path}: wanted one JSON object {{"op": "device", ...}} '
            "with strings as values"
        )
    return value
