"""Runs Grappler in a process of its own: reads a graph, writes what each op computes and moves.

Grappler is C++ that aborts on some malformed graphs; here that ends this process only. The process
needs two extension modules and none of TensorFlow's Python, so it starts in a third of a second.

A request is {"meta_graph": bytes, "device": bytes, "op_types": [str]}: a serialized MetaGraphDef
and NamedDevice, and what the graph uses. The answer is {"op_performance": [bytes]}, {"error": str}
or, as Grappler aborts on op types that it does not know, {"error": str, "unknown_op_types": [str]}.
The empty request asks for the devices of this host: {"devices": [bytes]}, serialized NamedDevices.
A request that has "config", a serialized ConfigProto, asks for {"optimized": bytes} instead, the
GraphDef that Grappler makes of the graph.
"""

import importlib.util
import sys
import types
from types import ModuleType

from graphs.host.parent import Parent
from graphs.protos import Pickled

USES_GPUS = True  # to list them
PACKAGES = ("tensorflow", "tensorflow.python", "tensorflow.python.grappler")


def load_grappler() -> tuple[ModuleType, ModuleType]:
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


def _modules() -> tuple[ModuleType, ModuleType]:
    item = importlib.import_module("tensorflow.python.grappler._pywrap_tf_item")
    return item, importlib.import_module("tensorflow.python.grappler._pywrap_tf_cluster")


def answer(request: dict[str, Pickled]) -> dict[str, Pickled]:
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
        if "config" in request:
            optimizer = importlib.import_module(f"{PACKAGES[-1]}._pywrap_tf_optimizer")
            graph = request["config"], request["meta_graph"]
            made = optimizer.TF_OptimizeGraphSerialized(cluster, *graph, False, "graph", False)
            return {"optimized": made}
        performance, _, _ = tf_cluster.TF_MeasureCosts(item, cluster, False)
    except Exception as error:  # whatever pybind makes of a C++ status
        return {"error": str(error)}
    return {"op_performance": performance}


def main(parent: Parent) -> None:
    """Sends the answer."""
    parent.tell(answer(parent.request))
