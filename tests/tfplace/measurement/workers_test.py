import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorflow.core.framework.graph_pb2 import GraphDef

from graphs.clusters.discovery import workers_cluster
from graphs.errors import ClusterError
from graphs.host.child import child_environment
from tfplace.measurement import measuring_process, workers
from tfplace.measurement.training_run import TrainingRun
from tfplace.measurement.workers import EXECUTOR_THREADS, WorkerPool, start_workers
from tfplace.preparing.executed_run import STEPS, execute

# A process that starts a worker and a measuring child, tells their ids, and hangs.
_PARENT = """
import signal
from graphs.host.child import start_child
from tfplace.measurement.workers import start_workers
pool = start_workers(1)
child = start_child("tfplace.measurement.measuring_child")
print(pool.children[0].process.pid, child.process.pid, flush=True)
signal.pause()
"""

# Starts a worker and tells whether it is reached by loopback, and by the host's other addresses.
_WITHOUT_NETWORK = """
import psutil, socket
from tfplace.measurement.workers import start_workers

def is_reached(address, port):
    with socket.socket() as client:
        client.settimeout(2)
        return client.connect_ex((address, port)) == 0

with start_workers(1) as pool:
    port = int(pool.addresses[0].rpartition(":")[2])
    print("own", is_reached("127.0.0.1", port))
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family == socket.AF_INET and not each.address.startswith("127."):
                print(is_reached(each.address, port))
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with start_workers(2, reachable=True) as running:
        yield running


def test_workers_are_tasks_of_one_job(pool: WorkerPool) -> None:
    assert len(set(pool.addresses)) == 2
    assert pool.target == f"grpc://{pool.addresses[0]}"
    assert pool.all_alive()


def test_each_worker_has_its_core(pool: WorkerPool) -> None:
    usable = sorted(os.sched_getaffinity(0))
    for task, child in enumerate(pool.children):
        assert os.sched_getaffinity(child.process.pid) == {usable[task % len(usable)]}


def test_a_worker_computes_with_one_of_two_executor_threads(pool: WorkerPool) -> None:
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session(pool.target) as session:
        with tf.device("/job:worker/task:0"):
            total = tf.constant(1.0) + tf.constant(2.0)
        session.run(total)  # its executor's threads exist from the first step on
    tasks = Path(f"/proc/{pool.children[0].process.pid}/task").iterdir()
    names = []
    for task in tasks:
        with contextlib.suppress(FileNotFoundError):  # another thread has ended meanwhile
            names.append((task / "comm").read_text().strip())
    assert names.count("tf_Compute") == EXECUTOR_THREADS == 2


def test_workers_serve_when_they_are_handed_out(pool: WorkerPool) -> None:
    for address in pool.addresses:
        host, port = address.split(":")
        socket.create_connection((host, int(port)), timeout=10).close()


class _FakeChild:
    def __init__(self, module: str, arguments: list[str], environment: dict[str, str]) -> None:
        self.task, self.core, self.addresses, self.memory_bytes, self.threads = arguments
        self.ended = False

    def end(self) -> None:
        self.ended = True


def test_more_workers_than_cores_share_and_it_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 6})
    monkeypatch.setattr(workers, "start_child", _FakeChild)
    monkeypatch.setattr(workers, "_wait_until_ready", lambda children, deadline: [])
    running = start_workers(3, reachable=True)
    assert [child.core for child in running.children] == ["4", "6", "4"]  # type: ignore[attr-defined]
    assert [child.task for child in running.children] == ["0", "1", "2"]  # type: ignore[attr-defined]
    assert {child.addresses for child in running.children} == {",".join(running.addresses)}  # type: ignore[attr-defined]
    assert "3 workers on 2 cores" in caplog.text


def test_a_failed_start_is_tried_again_on_other_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[list[_FakeChild]] = []

    def fails_once(children: list[_FakeChild], deadline: float) -> list[str]:
        attempts.append(list(children))
        return ["worker 0: port taken"] if len(attempts) == 1 else []

    monkeypatch.setattr(workers, "start_child", _FakeChild)
    monkeypatch.setattr(workers, "_wait_until_ready", fails_once)
    running = start_workers(1)
    assert [child.ended for attempt in attempts for child in attempt] == [True, False]
    assert running.children == attempts[1]


def test_an_exception_in_the_context_ends_the_workers() -> None:
    with pytest.raises(KeyboardInterrupt), start_workers(1) as running:
        raise KeyboardInterrupt
    assert [child.process.poll() for child in running.children] == [-signal.SIGKILL]
    assert not running.all_alive()


def test_an_interrupt_while_they_start_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def interrupted(children: list[workers.Child], deadline: float) -> list[str]:  # type: ignore[name-defined]
        started.extend(children)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "_wait_until_ready", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_workers(1)
    assert [child.process.poll() for child in started] == [-signal.SIGKILL]


def test_a_killed_parent_leaves_no_orphans() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, env=child_environment(), cwd="/"
    )
    assert parent.stdout is not None
    handles = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    for handle in handles:  # readable once the process has ended
        assert select.select([handle], [], [], 30)[0] == [handle]
        os.close(handle)


def test_a_taken_port_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(workers, "free_addresses", lambda count: [address])
        monkeypatch.setattr(workers, "_NUM_ATTEMPTS", 1)
        with pytest.raises(ClusterError, match=r"worker 0: .*server"):
            start_workers(1, reachable=True)


def test_workers_listen_in_a_network_of_their_own() -> None:
    before = _listening("self")
    with start_workers(2) as running:
        pids = [str(worker.process.pid) for worker in running.children]
        inside = [_listening(pid) for pid in pids]
        networks = {os.readlink(f"/proc/{pid}/ns/net") for pid in pids}
        assert _listening("self") == before
        assert len(inside[0]) == 2 and inside[0] == inside[1]
    assert len(networks) == 1
    assert networks != {os.readlink("/proc/self/ns/net")}


def test_where_the_kernel_gives_no_network_other_hosts_are_kept_out_and_it_is_said() -> None:
    # Limits of a user namespace hold in it only.
    script = f'echo 0 > /proc/sys/user/max_net_namespaces; exec {sys.executable} -c "$0"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", script, _WITHOUT_NETWORK]
    done = subprocess.run(
        command, env=child_environment(), cwd="/", capture_output=True, text=True, check=False
    )
    if "unshare failed" in done.stderr:
        pytest.skip("no user namespaces here")
    answers = done.stdout.split()
    assert answers[:2] == ["own", "True"], done.stderr[-500:]
    assert set(answers[2:]) <= {"False"}
    assert done.stderr.count("other users of this host can connect to the workers") == 1


def _listening(pid: str) -> set[str]:
    """What listens in the network of a process."""
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {words[1] for words in lines if words[3] == "0A"}


def test_no_workers_is_an_error() -> None:
    with pytest.raises(ClusterError, match="at least 1"):
        start_workers(0)


def test_ops_are_timed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once on one core would each seem to take up to twice as long."""
    asked: list[int] = []

    def start(*arguments: object) -> WorkerPool:
        asked.append(arguments[3])  # type: ignore[arg-type]
        raise ClusterError("that is all")

    monkeypatch.setattr(measuring_process, "start_workers", start)
    with pytest.raises(ClusterError, match="that is all"):
        execute(GraphDef(), TrainingRun({}, []), workers_cluster("2"), "/job:worker/task:0", STEPS)
    assert asked == [1]
