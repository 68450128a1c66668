"""Each probe has on each device the ops that it is to have, and sends what it is to send."""

from __future__ import annotations

from collections import Counter

import pytest

from tfplace.measurement.calibration.probe_graphs import (
    Probe,
    TransferProbe,
    op_chains,
    ping_pong,
    products_beside_transfers,
    products_on,
    step_probe,
    streams_on,
    transfers_at_once,
)

A, B = "/device:CPU:0", "/device:CPU:1"


def _step_nodes(probe: Probe) -> dict[str, object]:
    """{name: node} of what one step runs, without the variables' initial values."""
    nodes = {node.name: node for node in probe.graph_def.node}
    todo, needed = [name.split(":")[0] for name in probe.run.fetches], {}
    while todo:
        name = todo.pop()
        if name not in needed:
            needed[name] = nodes[name]
            todo += [each.lstrip("^").split(":")[0] for each in nodes[name].input]
    return needed


def _ops(probe: Probe) -> Counter[tuple[str, str]]:
    """How many ops of each type lie on each device."""
    return Counter((node.op, node.device) for node in _step_nodes(probe).values())


def _sent(probe: Probe) -> Counter[tuple[str, str]]:
    """How many tensors go from one device to another; control edges carry none."""
    nodes = _step_nodes(probe)
    uses = {
        (name, node.device)
        for node in nodes.values()
        for name in node.input
        if not name.startswith("^")
    }
    ends = [(nodes[name.split(":")[0]].device, device) for name, device in uses]
    return Counter(pair for pair in ends if pair[0] != pair[1])


def test_a_step_touches_every_device_and_sends_nothing() -> None:
    probe = step_probe([A, B], num_fetches=1)
    assert _sent(probe) == {}
    assert {device for _, device in _ops(probe)} == {A, B}
    assert len(probe.run.fetches) == 2  # the step's end and one element
    assert len(step_probe([A, B]).run.fetches) == 1


def test_chains_of_tiny_ops() -> None:
    ops = _ops(op_chains(A, length=5, count=3))
    assert ops["Minimum", A] + ops["Maximum", A] == 15


def test_products_for_each_named_device() -> None:
    assert _ops(products_on([A, A, B], side=2, depth=4)).items() >= {
        (("MatMul", A), 8),
        (("MatMul", B), 4),
    }


def test_streams_go_over_vectors_of_so_many_bytes() -> None:
    probe = streams_on([A, B], num_bytes=64, depth=3)
    ops = _ops(probe)
    assert [ops["Minimum", device] + ops["Maximum", device] for device in (A, B)] == [3, 3]
    handles = [node for node in probe.graph_def.node if node.op == "VarHandleOp"]
    shapes = Counter(node.attr["shape"].shape.dim[0].size for node in handles)
    assert shapes == {16: 4, 1: 2}  # two vectors on each device, and where the results end


def test_a_ping_pong_goes_to_and_fro() -> None:
    assert _sent(ping_pong(A, B, num_bytes=64, num_hops=3)) == {(A, B): 3, (B, A): 3}


def test_transfers_at_once_do_not_wait_for_each_other() -> None:
    probe = transfers_at_once([TransferProbe(A, B, 64, 3), TransferProbe(B, A, 64, 2)])
    assert _sent(probe) == {(A, B): 3, (B, A): 2}
    waits = [name for node in _step_nodes(probe).values() for name in node.input if "^" in name]
    assert len(waits) == 5  # the end of the step waits for all transfers, and nothing else waits


@pytest.mark.parametrize(("device", "products"), [(A, {A: 10}), (B, {A: 7, B: 10})])
def test_products_beside_transfers(device: str, products: dict[str, int]) -> None:
    transfers = TransferProbe(A, B, num_bytes=64, count=5)
    probe = products_beside_transfers(device, side=2, depth=10, transfers=transfers)
    assert _sent(probe) == {(A, B): 5}
    ops = _ops(probe)
    assert {each: ops["MatMul", each] for each in (A, B) if ops["MatMul", each]} == products
    # Each transfer waits for a product of its own, evenly along the source's chain.
    reads = [node for node in _step_nodes(probe).values() if node.op == "ReadVariableOp"]
    released = sorted({name for node in reads for name in node.input if name.startswith("^")})
    assert len(released) == 5 and all(name.startswith("^MatMul") for name in released)
