import os
import subprocess
import sys
import time
from pathlib import Path

from graphs.host.child import child_environment
from graphs.host.scratch import remove_stale

# Makes temporary folders, its child's among them, and waits to be killed.
_HOLDS = """
import sys
from graphs.host.child import start_process
from graphs.host.scratch import scratch_directory, temporary_directory
with scratch_directory() as folder, open(temporary_directory() + "/weights", "w"):
    child = start_process("tests.graphs.host.scratch_test", stdout=sys.stdout)
    child.wait()
"""


def _started(tmp_path: Path) -> "subprocess.Popen[str]":
    environment = {**child_environment(), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _HOLDS]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd="/")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_what_a_killed_process_leaves_is_removed_by_the_next_and_nothing_of_a_running_one(tmp_path):
    (tmp_path / "another's").write_text("")
    (tmp_path / ".tfplace.link.unfinished").symlink_to(tmp_path)
    killed, running = _started(tmp_path), _started(tmp_path)
    killed.kill()
    killed.wait()
    assert len(list(tmp_path.glob(".tfplace.*.unfinished"))) == 3
    remove_stale(tmp_path / "tfplace")
    left = {each.name for each in tmp_path.iterdir()}
    assert len(left) == 3 and left > {"another's", ".tfplace.link.unfinished"}
    running.kill()
    running.wait()
    remove_stale(tmp_path / "tfplace")
    assert {each.name for each in tmp_path.iterdir()} == left & {
        "another's",
        ".tfplace.link.unfinished",
    }


def test_nothing_stays_of_one_that_ends(tmp_path):
    script = "from graphs.host.scratch import temporary_directory as t; t(); print(t())"
    environment = {**child_environment(), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_children_make_theirs_inside():
    assert os.path.dirname(child_environment()["TMPDIR"]) != child_environment()["TMPDIR"]
    assert Path(child_environment()["TMPDIR"], "lock").exists()


if __name__ == "__main__":
    import tempfile

    tempfile.mkdtemp()
    print("ready", flush=True)
    time.sleep(60)
