"""What the cost cache keeps, as arrays and back."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

import numpy as np

from graphs.pricing.grappler_costs import OpWork
from graphs.pricing.inner_work import NO_INNER_WORK, InnerWork
from graphs.pricing.node_work import DEVICE_TYPES, NodeWork
from tfplace.preparing.cost_cache import Arrays
from tfplace.preparing.node_seconds import TracedNodes

_log = logging.getLogger("tfplace")
_NUMBERS = {
    "overhead_seconds": float,
    "wall_time_coverage": float,
    "num_steps": int,
    "num_disturbed": int,
    "background_share": float,
}


def node_work_arrays(asked: NodeWork) -> Arrays:
    """The arrays of an entry."""
    texts = {
        "notes": list(asked.work.notes),
        "kernel_source": asked.kernel_source,
        "trip_counts": dict(asked.trip_counts),
    }
    arrays: dict[str, Any] = {"flops": asked.work.flops, "memory_bytes": asked.work.memory_bytes}
    for device_type in DEVICE_TYPES:
        arrays[f"has_kernel_{device_type}"] = asked.has_kernel[device_type]
        arrays[f"launches_{device_type}"] = asked.launches[device_type]
    if asked.times is not None:
        arrays["times"] = asked.times
    for field in dataclasses.fields(InnerWork):
        arrays[f"inner_{field.name}"] = getattr(asked.inner, field.name)
    return {**arrays, "texts": np.array(json.dumps(texts))}


def node_work_from(arrays: Arrays, num_nodes: int) -> NodeWork | None:
    """Back from `node_work_arrays`; None, and a warning, where they are not of such a graph."""
    try:
        texts = json.loads(str(arrays["texts"]))
        return NodeWork(
            OpWork(
                _floats(arrays, "flops", num_nodes),
                _floats(arrays, "memory_bytes", num_nodes),
                tuple(texts["notes"]),
            ),
            {t: _bools(arrays, f"has_kernel_{t}", num_nodes) for t in DEVICE_TYPES},
            {t: _bools(arrays, f"launches_{t}", num_nodes) for t in DEVICE_TYPES},
            str(texts["kernel_source"]),
            _floats(arrays, "times", num_nodes) if "times" in arrays else None,
            _inner_from(arrays, num_nodes),
            {str(name): int(count) for name, count in texts["trip_counts"].items()},
        )
    except (KeyError, ValueError, TypeError) as error:
        _log.warning("a cache entry of analytic costs is damaged (%r): it is made anew", error)
        return None


def _inner_from(arrays: Arrays, num_nodes: int) -> InnerWork:
    found: dict[str, Any] = {
        f.name: arrays[f"inner_{f.name}"] for f in dataclasses.fields(InnerWork)
    }
    empty = {f.name: getattr(NO_INNER_WORK, f.name) for f in dataclasses.fields(InnerWork)}
    rows = len(found["node"])
    for name, array in found.items():
        _checked(array, f"inner_{name}", empty[name].dtype, rows)
    if rows and not 0 <= found["node"].min() <= found["node"].max() < num_nodes:
        raise ValueError("inner_node is out of range")
    return InnerWork(**found)


def traced_arrays(traced: TracedNodes) -> Arrays:
    """The arrays of an entry."""
    numbers = {name: np.array(getattr(traced, name), dtype=np.float64) for name in _NUMBERS}
    arrays = {"seconds": traced.seconds, "is_absent": traced.is_absent, "place": traced.place}
    return {**arrays, **numbers}


def traced_from(arrays: Arrays, num_nodes: int) -> TracedNodes | None:
    """Back from `traced_arrays`; None, and a warning, where they are not of such a graph."""
    try:
        seconds = _floats(arrays, "seconds", num_nodes)
        if (seconds < 0.0).any():
            raise ValueError("negative seconds")
        numbers: dict[str, Any] = {name: kind(arrays[name]) for name, kind in _NUMBERS.items()}
        return TracedNodes(
            seconds=seconds,
            is_absent=_bools(arrays, "is_absent", num_nodes),
            place=_checked(arrays["place"], "place", np.int64, num_nodes),
            **numbers,
        )
    except (KeyError, ValueError, TypeError) as error:
        _log.warning("a cache entry of traced costs is damaged (%r): it is made anew", error)
        return None


def _floats(arrays: Arrays, name: str, num_nodes: int) -> Any:
    return _checked(arrays[name], name, np.float64, num_nodes)


def _bools(arrays: Arrays, name: str, num_nodes: int) -> Any:
    return _checked(arrays[name], name, np.bool_, num_nodes)


def _checked(array: Any, name: str, dtype: Any, num_nodes: int) -> Any:
    if array.dtype != dtype or array.shape != (num_nodes,):
        raise ValueError(f"{name} is {array.dtype}{list(array.shape)}")
    return array
