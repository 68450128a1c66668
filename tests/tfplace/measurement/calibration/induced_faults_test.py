"""Faults that `tfplace check --run` names in a sentence, induced in servers, files and models.

About a minute and a half; by hand with `pytest -m faults`.
"""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest
import tensorflow as tf

from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.discovery import find_cluster
from graphs.host.child import start_child
from tfplace.cli import main
from tfplace.measurement import workers
from tfplace.measurement.workers import free_addresses

pytestmark = pytest.mark.faults
FIRST, SECOND = find_cluster("workers:2").device_names
v1 = tf.compat.v1


@pytest.fixture
def served(monkeypatch):
    """Starts the servers of two tasks and tells TF_CONFIG of them; takes what to change of that.

    Args:
      own: {task: the addresses that its server is told}, where they are others.
      told: the addresses that TF_CONFIG has, where they are others.
    """
    servers = []

    def start(own=lambda addresses: {}, told=lambda addresses: addresses):
        addresses = free_addresses(2)
        for task in range(2):
            known = own(addresses).get(task, addresses)
            arguments = [str(task), "0", ",".join(known), "0", "2"]
            servers.append(start_child("tfplace.measurement.worker", arguments))
        assert [server.receive(60.0) for server in servers] == ["", ""]
        config = {"cluster": {"worker": told(addresses)}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        return addresses, [server.process for server in servers]

    yield start
    for server in servers:
        server.end()


@pytest.fixture
def silent():
    """An address where connections are taken and nothing is ever said, as behind a firewall."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def said(tiny_rnnlm, capfd):
    """Checks a model; the one line on stderr, without what leads up to the verdict's reason."""

    def check(cluster, *flags, model=tiny_rnnlm):
        assert main(["check", str(model), f"--cluster={cluster}", "--run", *flags]) == 2
        out, err = capfd.readouterr()
        *_, line = err.splitlines()
        assert "Traceback" not in out + err and line.startswith("tfplace: error: ")
        assert all(len(each) <= 80 for each in out.splitlines())
        return line.partition(" as it is: ")[2].partition("; wanted devices")[0] or line

    return check


def with_one_more(cluster, name, tmp_path):
    """A cluster file with another device."""
    value = cluster_to_json(cluster)
    value["devices"].append({"name": name, "memory": "1GiB"})
    value["default_link"] = {"bytes_per_second": 1e9, "latency_seconds": 1e-4}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(value))
    return path


def test_servers_that_run_work(served, tiny_rnnlm, capfd):
    served()
    assert main(["check", tiny_rnnlm, "--cluster=tf_config", "--run"]) == 0
    assert "devices   2 CPUs work" in capfd.readouterr().out


@pytest.mark.parametrize(("task", "name"), [(0, FIRST), (1, SECOND)])
def test_a_frozen_task(served, said, task, name):
    addresses, processes = served()
    os.kill(processes[task].pid, signal.SIGSTOP)
    assert said("tf_config") == (
        f"{name} does not work: what listens at {addresses[task]} gives no answer within 3 s: it "
        "is stopped or stuck, or no TensorFlow server; let it go on, or start a server there"
    )


@pytest.mark.parametrize(("task", "name"), [(0, FIRST), (1, SECOND)])
def test_a_dead_task(served, said, task, name):
    addresses, processes = served()
    processes[task].kill()
    processes[task].wait()
    assert said("tf_config") == (
        f"{name} does not work: nothing answers at {addresses[task]} ([Errno 111] Connection "
        "refused); start its server, or mend the address"
    )


def test_a_port_that_something_else_has(served, silent, said):
    served(told=lambda addresses: [addresses[0], silent])
    assert said("tf_config").startswith(f"{SECOND} does not work: what listens at {silent} gives ")


def test_ports_that_workers_find_taken(said, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(workers, "free_addresses", lambda count: [address] * count)
        monkeypatch.setattr(workers, "environment", lambda pid: {})
        assert said("workers:2").startswith(
            "tfplace: error: starting 2 workers on loopback ports: "
        )


def test_addresses_in_another_order(served, said):
    addresses, _ = served(told=lambda addresses: addresses[::-1])
    assert said("tf_config") == (
        f"{FIRST} does not work (1 other neither): the server at {addresses[1]} is "
        "/job:worker/task:1; mend the address, or start that server as this task"
    )


def test_a_wrong_address_in_a_servers_own_cluster(served, said):
    [nowhere] = free_addresses(1)
    addresses, _ = served(own=lambda addresses: {0: [addresses[0], nowhere]})
    assert said("tf_config") == (
        f"nothing goes from {SECOND} to {FIRST}: the server at {addresses[0]} does not reach that "
        "task: it gets no answer within 3 s; start it with the addresses of this cluster, and let "
        "nothing block its way there"
    )


def test_a_blocked_link(served, silent, said):
    addresses, _ = served(own=lambda addresses: {1: [silent, addresses[1]]})
    assert said("tf_config").startswith(
        f"nothing goes from {FIRST} to {SECOND}: the server at {addresses[1]} does not reach that "
    )


def test_more_devices_than_a_server_has(served, said, tmp_path):
    addresses, _ = served()
    name = "/job:worker/task:1/device:CPU:1"
    assert said(with_one_more(find_cluster("tf_config"), name, tmp_path)) == (
        f"{name} does not work: the server at {addresses[1]} has no such device; it has CPU:0"
    )


def test_a_device_that_is_not_on_this_host(said, tmp_path):
    assert said(with_one_more(find_cluster("local"), "/device:GPU:0", tmp_path)).startswith(
        "/device:GPU:0 does not work: TensorFlow has no such device here; it has "
    )


def test_a_limit_that_is_too_small(said):
    found = said("workers:2", "--device_memory=20KiB")
    assert found.startswith(f"{FIRST} is too small")


def test_an_op_without_a_kernel(said, tmp_path):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        tf.raw_ops.NcclAllReduce(input=x, reduction="sum", num_devices=1, shared_name="", name="y")
    path = tmp_path / "model.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    assert said("workers:2", "--fetch=y:0", model=path) == (
        f"tfplace: error: checking {str(path)!r}: combining pins, colocation and kernels: op 'y' "
        "has no device: 'y' has no kernel on any device; change --pin, --no_split or "
        "--keep_devices, or the cluster"
    )


def test_a_model_that_can_not_be_read(said, tmp_path):
    path = tmp_path / "model.pb"
    path.write_bytes(b"\xff" * 64)
    assert "model.pb" in said("workers:2", model=path)
