"""The documents' example of two hosts: its server on two addresses, a placement on both."""

import contextlib
import json
import re
import socket
import subprocess
from pathlib import Path

import pytest

from graphs.clusters.cluster_file import cluster_from_json, cluster_to_json
from graphs.clusters.discovery import find_cluster
from graphs.host.child import child_environment, start_process
from tests.tfplace.measurement.measure_graphs import towers, towers_run
from tfplace.measurement.presence import is_present
from tfplace.measurement.trace import devices_used, trace_run
from tfplace.measurement.training_run import exactly

HOSTS = ("127.0.0.1", "127.0.0.2")
PAGE = Path(__file__).parents[3] / "tfplace" / "docs" / "multiple_hosts.md"


def free_address(host):
    with contextlib.closing(socket.socket()) as taken:
        taken.bind((host, 0))
        return f"{host}:{taken.getsockname()[1]}"


@pytest.fixture
def addresses(tmp_path):
    """Of the page's server, running on each host."""
    (script,) = re.findall(r"```python\n(# serve\.py.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "serve.py").write_text(script)
    found = [free_address(host) for host in HOSTS]
    servers = []
    for index in range(len(HOSTS)):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": found}, "task": task})
        search = f"{child_environment()['PYTHONPATH']}:{tmp_path}"
        environment = {"TF_CONFIG": config, "PYTHONPATH": search}
        servers.append(start_process("serve", (), "/", environment, stderr=subprocess.DEVNULL))
    yield found
    for server in servers:
        server.kill()
        server.wait()


def test_a_placement_runs_on_both_hosts(addresses, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": addresses}}))
    cluster = find_cluster("tf_config")
    assert [device.address for device in cluster.devices] == addresses
    assert cluster_from_json(cluster_to_json(cluster)).devices == cluster.devices
    assert is_present(cluster)
    names = list(cluster.device_names)
    used = devices_used(trace_run(towers(names), towers_run(), cluster, exactly(1, 1)))
    assert set(used) == set(names)
    assert all(use.num_ops >= 3 for use in used.values())
