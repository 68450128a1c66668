import tensorflow as tf

from graphs.source_model import Initialization
from tests.tfplace.measurement.measure_graphs import WORKERS, towers
from tfplace.measurement.run_graph import prepare_run_graph, subgraph, variable_nodes


def _names(graph_def: tf.compat.v1.GraphDef) -> set[str]:
    return {node.name for node in graph_def.node}


def test_subgraph_holds_what_the_fetch_needs() -> None:
    graph_def = towers(["", ""])
    assert _names(subgraph(graph_def, ["product1:0"], ["x:0"])) == {
        "v1",
        "product1/ReadVariableOp",
        "product1",
    }


def test_subgraph_stops_at_a_fed_tensor() -> None:
    graph_def = towers(["", ""])
    assert _names(subgraph(graph_def, ["sum0"], ["product0"])) == {"sum0", "Const"}
    assert _names(subgraph(graph_def, ["product0"], ["product0"])) >= {"product0", "v0", "x"}


def test_initialization_is_joined_in_without_devices() -> None:
    source = towers(["/device:CPU:0"] * 2)
    run_graph = subgraph(towers(WORKERS), ["loss"], ())
    merged = prepare_run_graph(
        run_graph, source, Initialization(init_ops=["init"]), WORKERS[0], "own"
    )
    device = {node.name: node.device for node in merged.node}
    assert (device["v0"], device["v1"]) == WORKERS
    assert device["init"] == device["v1/Assign"] == ""
    assert "update0" not in device
    assert {n.attr["container"].s for n in variable_nodes(merged).values()} == {b"own"}
    assert _names(run_graph) < set(device)


def test_devices_without_a_job_get_the_default_ones() -> None:
    graph_def = towers(["/device:CPU:0", ""])
    merged = prepare_run_graph(graph_def, graph_def, Initialization(), WORKERS[1], "own")
    device = {node.name: node.device for node in merged.node}
    assert device["v0"] == WORKERS[1]
    assert device["v1"] == ""


def test_colocation_with_a_missing_op_is_dropped() -> None:
    graph_def = towers(["", ""])
    for node in graph_def.node:
        if node.name == "sum0":
            node.attr["_class"].list.s.extend([b"loc:@product0", b"loc:@product1"])
    (sum0,) = (n for n in subgraph(graph_def, ["sum0"], ()).node if n.name == "sum0")
    assert list(sum0.attr["_class"].list.s) == [b"loc:@product0"]


def test_a_variable_without_shared_name_is_known_by_its_op() -> None:
    graph_def = towers(["", ""])
    for node in graph_def.node:
        if node.name == "v0":
            node.attr["shared_name"].s = b""
    merged = prepare_run_graph(graph_def, graph_def, Initialization(), "/device:CPU:0", "own")
    assert set(variable_nodes(merged)) == {"v0", "v1"}
    assert variable_nodes(merged)["v0"].attr["shared_name"].s == b"v0"
