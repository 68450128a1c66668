"""tfplace: decides which op of a TensorFlow graph runs on which device, and writes it down."""

import importlib
import importlib.util
import os
from typing import TYPE_CHECKING, Any

from tfplace.version import __version__

if TYPE_CHECKING:
    from graphs.cluster import Cluster, Device
    from graphs.errors import TfplaceError
    from tfplace.api.commands import cluster, inspect, optimize, run, simulate
    from tfplace.api.load import load, make_whole
    from tfplace.api.placed_step import PlacedStep, place
    from tfplace.report.report import Report
    from tfplace.simulation.simulated import Prediction

__all__ = [
    "Cluster",
    "Device",
    "PlacedStep",
    "Prediction",
    "Report",
    "TfplaceError",
    "__version__",
    "cluster",
    "inspect",
    "load",
    "make_whole",
    "optimize",
    "place",
    "run",
    "simulate",
]


def _check_siblings() -> None:
    """The packages `graphs` and `rewrite` have common names: make sure that they are ours."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in ("graphs", "rewrite"):
        spec = importlib.util.find_spec(name)
        found = os.path.dirname(os.path.abspath(spec.origin)) if spec and spec.origin else None
        if found is None or os.path.dirname(found) != home:
            raise ImportError(
                f"importing tfplace: its package {name!r} should lie in {home}, but Python finds "
                f"{found or 'none'}; another {name!r} shadows it: run from another directory, "
                "rename that one, or install tfplace again"
            )


_check_siblings()

# Imported when they are used for the first time: `import tfplace` must not take TensorFlow's time.
_HOMES = {
    "Cluster": "graphs.cluster",
    "Device": "graphs.cluster",
    "PlacedStep": "tfplace.api.placed_step",
    "Prediction": "tfplace.simulation.simulated",
    "Report": "tfplace.report.report",
    "TfplaceError": "graphs.errors",
    "cluster": "tfplace.api.commands",
    "inspect": "tfplace.api.commands",
    "load": "tfplace.api.load",
    "make_whole": "tfplace.api.load",
    "optimize": "tfplace.api.commands",
    "place": "tfplace.api.placed_step",
    "run": "tfplace.api.commands",
    "simulate": "tfplace.api.commands",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tfplace' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
