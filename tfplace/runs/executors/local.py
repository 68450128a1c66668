"""Programs as child processes of this one: they end with it, by Ctrl-C or when it is killed."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from typing import IO

import psutil

from graphs.host.child import start_process
from graphs.host.how_it_ended import file_tail
from tfplace.runs.executors.program import Ended, Program
from tfplace.units_text import bytes_text

POLL_SECONDS = 0.25  # how often limits are looked at


class LocalExecutor:
    """Runs programs on this host, from several threads at a time, until it is told to stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def run(self, program: Program) -> Ended | None:
        """Runs it to its end or a limit; None where stopped; OSError: its log can't be written."""
        if program.num_gpus:
            reason = "only Ray gives out GPUs by number: say --executor=ray, or no --num_gpus"
            return Ended(1, b"", "", reason)
        with open(program.log, "ab+") if program.log else tempfile.TemporaryFile() as stderr:
            begin = stderr.seek(0, os.SEEK_END)  # what an earlier attempt said is not ours
            process = self._start(program, stderr)
            if process is None:
                return None
            try:
                output, reason = _wait(process, program)
            finally:
                _kill_session(process.pid)
                process.wait()
                with self._lock:
                    self._running.discard(process)
            if self._is_stopped:
                return None
            complaints = file_tail(stderr, begin=begin)
        return Ended(process.returncode, output, complaints, reason, socket.gethostname())

    def stop(self) -> None:
        """Ends what runs; nothing starts any more."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                _kill_session(process.pid)

    def _start(self, program: Program, stderr: IO[bytes]) -> subprocess.Popen[bytes] | None:
        arguments = list(program.arguments)
        for name, path in program.folders.items():
            arguments = [argument.replace(f"{{{name}}}", path) for argument in arguments]
        with self._lock:
            if self._is_stopped:
                return None
            process = start_process(
                program.module,
                arguments,
                program.directory,
                program.environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
            self._running.add(process)
        return process


def _wait(process: subprocess.Popen[bytes], program: Program) -> tuple[bytes, str]:
    """What it wrote on stdout, and the limit that ended it, "" for none."""
    began = time.monotonic()
    reason = ""
    while True:
        try:
            return process.communicate(timeout=POLL_SECONDS)[0], reason
        except subprocess.TimeoutExpired:
            reason = _limit_reached(process, program, time.monotonic() - began)
        if reason:
            _kill_session(process.pid)
            return process.communicate()[0], reason


def _limit_reached(process: subprocess.Popen[bytes], program: Program, seconds: float) -> str:
    limit = program.time_limit_seconds
    if limit is not None and seconds >= limit:
        return f"no end within {limit:g} s: it was killed"
    allowed = program.memory_limit_bytes
    if allowed is not None:
        used = memory_bytes(process.pid)
        if used > allowed:
            return (
                f"it took {bytes_text(used)} of memory, with {bytes_text(allowed)} allowed: it was "
                "killed"
            )
    return ""


def memory_bytes(process_id: int) -> int:
    """Memory that a process and all that it started hold for themselves; 0 when they have ended.

    What they share, such as TensorFlow's libraries, is left out, and so is swapped memory. A
    limit on the address space (RLIMIT_AS) would count what TensorFlow only reserves.
    """
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process_id)
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                memory = process.memory_info()
                total += memory.rss - memory.shared
    return total


def _kill_session(leader: int) -> None:
    """Kills the processes of a session; children that lead their own die with their parents."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
