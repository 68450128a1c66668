"""Runs Grappler in a process of its own: reads a graph, writes what each op computes and moves.

Grappler is C++ that aborts on some malformed graphs; here that ends this process only. The process
needs two extension modules and none of TensorFlow's Python, so it starts in a third of a second.

Run as `python -P grappler_process.py REQUEST ANSWER`, two files that hold a pickle each.

- REQUEST is {"meta_graph": a serialized MetaGraphDef, "device": a serialized NamedDevice,
  "op_types": the op types that the graph uses}.
- ANSWER is {"op_performance": [a serialized OpPerformance]} or {"error": why}. Grappler would abort
  on an op type that it does not know; then ANSWER has "unknown_op_types", too.
- The empty REQUEST asks for the devices of this host: {"devices": [a serialized NamedDevice]}.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
import types
from typing import Any

PACKAGES = ("tensorflow", "tensorflow.python", "tensorflow.python.grappler")


def load_grappler() -> tuple[Any, Any]:
    """The modules `_pywrap_tf_item` and `_pywrap_tf_cluster`.

    Empty packages stand in for TensorFlow's own, whose __init__ would import all of TensorFlow.
    Where some other TensorFlow doesn't work that way, its packages are imported after all.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is not None and spec.submodule_search_locations:
        root = spec.submodule_search_locations[0]
        for name in PACKAGES:
            package = types.ModuleType(name)
            package.__path__ = [root + name.removeprefix("tensorflow").replace(".", "/")]
            sys.modules[name] = package
    try:
        return _modules()
    except ImportError:
        for name in [name for name in sys.modules if name.split(".")[0] == "tensorflow"]:
            del sys.modules[name]
        return _modules()


def _modules() -> tuple[Any, Any]:
    item = importlib.import_module("tensorflow.python.grappler._pywrap_tf_item")
    cluster = importlib.import_module("tensorflow.python.grappler._pywrap_tf_cluster")
    return item, cluster


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Prices the request's graph with every op on its one device, or lists this host's."""
    tf_item, tf_cluster = load_grappler()
    if not request:
        host = tf_cluster.TF_NewCluster(True, True)
        devices = tf_cluster.TF_ListDevices(host)
        tf_cluster.TF_ShutdownCluster(host)
        return {"devices": devices}
    unknown = sorted(set(request["op_types"]) - set(tf_cluster.TF_ListAvailableOps()))
    if unknown:
        return {"error": f"unknown op types {', '.join(unknown)}", "unknown_op_types": unknown}
    try:
        item = tf_item.TF_NewItem(request["meta_graph"], True, True)
        cluster = tf_cluster.TF_NewVirtualCluster([request["device"]])
        performance, _, _ = tf_cluster.TF_MeasureCosts(item, cluster, False)
    except Exception as error:  # whatever pybind makes of a C++ status
        return {"error": str(error)}
    return {"op_performance": performance}


def main(request_path: str, answer_path: str) -> None:
    """Reads the request, writes the answer."""
    with open(request_path, "rb") as file:
        request = pickle.load(file)
    result = answer(request)
    with open(answer_path, "wb") as file:
        pickle.dump(result, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
