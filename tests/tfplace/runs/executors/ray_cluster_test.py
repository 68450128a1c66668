"""Tests of tfplace.runs.executors.ray_cluster: with a fake Ray, and (-m ray) on a real cluster."""

import json
import os
import select
import signal
import sys
import threading
import types

import pytest

from graphs.clusters.cluster_file import cluster_to_json
from graphs.clusters.named_clusters import named
from graphs.errors import UsageError
from tfplace.cli import main
from tfplace.runs.batch.job_state import Job
from tfplace.runs.batch.run_jobs import Listener, run_batch
from tfplace.runs.bench.run_cells import BenchRun, Grid
from tfplace.runs.executors import executor_for, ray_cluster
from tfplace.runs.executors.local import LocalExecutor
from tfplace.runs.executors.program import Ended, ProcessLimits, Program
from tfplace.runs.executors.ray_cluster import RayExecutor, pack, run_on_node, unpack

SHOW = "import os, sys; print(os.environ.get('CUDA_VISIBLE_DEVICES'), *map(open, sys.argv[1:]))"


@pytest.fixture
def scripted(tmp_path):
    """A work that runs a script."""

    def work(script, **fields):
        (tmp_path / "scripted.py").write_text(script)
        paths = [str(tmp_path), os.getcwd()]
        environment = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        return Program("scripted", fields.pop("arguments", []), environment=environment, **fields)

    return work


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class FakeRay(types.ModuleType):
    """Runs a task when its result is asked for, in this process."""

    def __init__(self, gpus=(0,), failure=None):
        super().__init__("ray")
        self.gpus, self.failure = gpus, failure
        self.asked, self.cancelled = [], []
        self.exceptions = types.SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def init(self, address, **options):
        if address == "nowhere:1":
            raise ConnectionError("no cluster there")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def remote(self, function):
        def options(**asked):
            self.asked.append(asked)
            return types.SimpleNamespace(remote=lambda *words: lambda: function(*words))

        return types.SimpleNamespace(options=options)

    def get(self, reference):
        if self.failure:
            raise self.failure
        return reference()

    def nodes(self):
        return [{"Alive": True, "Resources": {"GPU": float(count)}} for count in self.gpus]

    def cluster_resources(self):
        return {"CPU": 3.0}

    def cancel(self, reference, force):
        self.cancelled.append(reference)

    def shutdown(self):
        self.is_down = True


@pytest.fixture
def fake(monkeypatch):
    """Puts a fake Ray in the place of Ray."""

    def fake(**options):
        module = FakeRay(**options)
        monkeypatch.setitem(sys.modules, "ray", module)
        return module

    monkeypatch.setattr(ray_cluster, "_node_name", lambda: "1.2.3.4/abc")
    return fake


def test_folders_travel_and_the_log_comes_back(fake, scripted, tmp_path):
    ray = fake(gpus=(0, 2))
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "x").write_text("content")
    log = tmp_path / "log"
    log.write_text("before\n")
    script = "import sys; print(open(sys.argv[1]).read()); print('said', file=sys.stderr)"
    work = scripted(script, arguments=["{place}/deep/x"], folders={"place": str(folder)},
                    log=str(log), num_gpus=2)  # fmt: skip
    before = signal.getsignal(signal.SIGTERM)
    with executor_for("ray", "1.2.3.4:5") as (executor, capacity):
        assert executor.run(work) == Ended(0, b"content\n", "said\n", host="1.2.3.4/abc")
    assert capacity == 3 and ray.is_down
    assert signal.getsignal(signal.SIGTERM) is before
    assert log.read_text() == "before\nsaid\n"
    assert ray.asked == [{"num_cpus": 1, "num_gpus": 2, "max_retries": 5, "name": "scripted"}]


def test_more_gpus_than_a_node_has_and_a_missing_folder_are_told(fake, scripted):
    fake(gpus=(1, 2))
    executor = RayExecutor(None)
    assert (
        "asking Ray for 3 GPUs: its largest node has 2"
        in executor.run(scripted("", num_gpus=3)).failure()
    )
    ended, said = run_on_node(scripted("", directory="/nowhere"), {})
    assert "1.2.3.4/abc has no folder /nowhere" in ended.failure() and said == b""
    assert "say --executor=ray" in LocalExecutor().run(scripted("", num_gpus=1)).failure()


def test_lost_nodes_defects_and_stopping(fake, scripted):
    ray = fake(failure=RayError("node died"))
    executor = RayExecutor(None)
    assert executor.run(scripted("")).failure() == "its nodes were lost (RayError), 6 attempts"
    ray.failure = RayTaskError("ZeroDivisionError")
    assert executor.run(scripted("")).failure() == "a defect of tfplace: ZeroDivisionError"
    executor.stop()
    assert executor.run(scripted("")) is None
    assert ray.cancelled == []


def test_usage_errors(fake, monkeypatch, capsys, tmp_path):
    fake()
    with pytest.raises(UsageError, match="connecting to Ray at nowhere:1: no cluster there"):
        RayExecutor("nowhere:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    jobs = tmp_path / "jobs"
    jobs.write_text("devices\n")
    assert main(["batch", str(jobs), "--executor=ray"]) == 1
    assert "pip install 'tfplace[ray]'" in capsys.readouterr().err
    assert main(["batch", str(jobs), "--ray_address=a:1"]) == 1
    assert "it needs --executor=ray" in capsys.readouterr().err
    assert not (tmp_path / "jobs_batch").exists()


def test_what_is_packed_is_unpacked(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"\0x")
    place = unpack(pack(str(tmp_path / "a")), tmp_path / "z")
    assert place == str(tmp_path / "z")
    assert (tmp_path / "z" / "b" / "c").read_bytes() == b"\0x"


@pytest.fixture
def two_nodes():
    """A Ray cluster of two nodes on this host: (cluster, its second node)."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install tfplace[ray]")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1, num_gpus=2)
    cluster.wait_for_nodes()
    yield cluster, second
    cluster.shutdown()


@pytest.mark.ray
def test_a_node_killed_in_the_middle_all_jobs_are_done_once(two_nodes, tmp_path, scripted):
    """Two jobs hang on a pipe, one on each node; the one whose node dies is done by the other."""
    cluster, second = two_nodes
    pipes = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path in pipes:
        os.mkfifo(path)
    jobs = [Job(f"hangs{i}", i, "", "devices", (f"--cluster={p}",)) for i, p in enumerate(pipes)]
    jobs += [Job(f"quick{i}", i, "", "cache", (f"--cost_cache_dir={tmp_path}/{i}",),
                 limits=ProcessLimits(time_limit_seconds=60.0)) for i in (2, 3)]  # fmt: skip
    box = json.dumps(cluster_to_json(named("k80x2")))
    found = []
    with executor_for("ray", cluster.address) as (executor, capacity):
        assert capacity == 2
        shown = executor.run(scripted(SHOW, num_gpus=1))
        assert shown.failure() == "" and shown.output in (b"0\n", b"1\n")
        words = (jobs, executor, Listener(), str(tmp_path / "out"), 2)
        thread = threading.Thread(target=lambda: found.append(run_batch(*words)))
        thread.start()
        writers = [open(path, "w") for path in pipes]  # noqa: SIM115 - each opens when its job has
        poll = select.poll()
        for writer in writers:
            poll.register(writer, 0)
        cluster.remove_node(second, allow_graceful=False)
        ((descriptor, event),) = poll.poll()
        assert event == select.POLLERR
        lost = next(i for i, writer in enumerate(writers) if writer.fileno() == descriptor)
        writers[1 - lost].write(box)
        for writer in writers:
            writer.close()
        with open(pipes[lost], "w") as writer:  # opens when the job is there again
            writer.write(box)
        thread.join()
    (result,) = found
    assert [(row.state.state, row.state.attempts) for row in result.rows] == [("done", 1)] * 4
    assert {row.state.host for row in result.rows} == {result.rows[1 - lost].state.host}
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["complete"] and summary["num_done"] == 4


@pytest.mark.ray
def test_bench_cells_find_the_same_as_on_this_host(two_nodes, tmp_path):
    cluster, _ = two_nodes
    grid = Grid(["cifar10:size=tiny"], ["k80x2"], ["random", "post"], [1], 40, 60.0, parallel=2)

    def found(executor, name):
        bench = BenchRun(grid, str(tmp_path / name), [], executor, lambda *row: None)
        bench.run(grid.parallel)
        return bench.done

    local = found(LocalExecutor(), "local.json")
    with executor_for("ray", cluster.address) as (executor, _):
        remote = found(executor, "ray.json")
    for rows in (local, remote):
        for row in rows:
            assert "error" not in row
            row["history"] = [(point[0], point[2]) for point in row["history"]]
            row.pop("seconds")
    assert remote == local
