"""What the cost cache keeps, as arrays and back."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np

from graphs.pricing.grappler_costs import Work
from graphs.pricing.node_work import DEVICE_TYPES, NodeWork
from tfplace.costing.cost_cache import Arrays
from tfplace.costing.node_seconds import TracedNodes

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
    texts = {"notes": list(asked.work.notes), "kernel_source": asked.kernel_source}
    arrays: dict[str, Any] = {"flops": asked.work.flops, "memory_bytes": asked.work.memory_bytes}
    for device_type in DEVICE_TYPES:
        arrays[f"has_kernel_{device_type}"] = asked.has_kernel[device_type]
        arrays[f"launches_{device_type}"] = asked.launches[device_type]
    return {**arrays, "texts": np.array(json.dumps(texts))}


def node_work_from(arrays: Arrays, num_nodes: int) -> NodeWork | None:
    """Back from `node_work_arrays`; None, and a warning, where they are not of such a graph."""
    try:
        texts = json.loads(str(arrays["texts"]))
        return NodeWork(
            Work(
                _floats(arrays, "flops", num_nodes),
                _floats(arrays, "memory_bytes", num_nodes),
                tuple(texts["notes"]),
            ),
            {t: _bools(arrays, f"has_kernel_{t}", num_nodes) for t in DEVICE_TYPES},
            {t: _bools(arrays, f"launches_{t}", num_nodes) for t in DEVICE_TYPES},
            str(texts["kernel_source"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        _log.warning("a cache entry of analytic costs is damaged (%r): it is made anew", error)
        return None


def traced_arrays(traced: TracedNodes) -> Arrays:
    """The arrays of an entry."""
    numbers = {name: np.array(getattr(traced, name), dtype=np.float64) for name in _NUMBERS}
    return {"seconds": traced.seconds, "is_absent": traced.is_absent, **numbers}


def traced_from(arrays: Arrays, num_nodes: int) -> TracedNodes | None:
    """Back from `traced_arrays`; None, and a warning, where they are not of such a graph."""
    try:
        seconds = _floats(arrays, "seconds", num_nodes)
        if (seconds < 0.0).any():
            raise ValueError("negative seconds")
        numbers: dict[str, Any] = {name: kind(arrays[name]) for name, kind in _NUMBERS.items()}
        return TracedNodes(
            seconds=seconds, is_absent=_bools(arrays, "is_absent", num_nodes), **numbers
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
