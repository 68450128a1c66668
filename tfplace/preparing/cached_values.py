"""Traced seconds as arrays that the cost cache keeps, and back."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

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
