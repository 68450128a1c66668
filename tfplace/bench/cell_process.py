"""Cells as child processes: they end with the bench, by Ctrl-C or with this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from graphs.child_process import child_environment, end_cause, end_process

SETUP_SECONDS = 600.0  # what a cell may take beyond its budget: imports, compiling, one batch


class CellProcesses:
    """Runs cells, from several threads at a time, until it is told to stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def run(self, request: Mapping[str, Any]) -> dict[str, Any] | str | None:
        """What the row of a cell has beside its key.

        Args:
          request: see tfplace.bench.cell.

        Returns:
          The rest of the row; why the cell failed; or None where it was stopped.
        """
        process = self._start(request)
        if process is None:
            return None
        limit = 2 * request["budget_seconds"] + SETUP_SECONDS
        try:
            answer, complaints = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return f"no answer within {limit:.0f} s"
        finally:
            end_process(process)
            with self._lock:
                self._running.discard(process)
        if self._is_stopped:
            return None
        if process.returncode:
            words = [
                line for line in complaints.decode(errors="replace").splitlines() if line.strip()
            ]
            return words[-1] if words else end_cause(process.returncode)
        row: dict[str, Any] = json.loads(answer.splitlines()[-1])
        return row

    def stop(self) -> None:
        """Ends what runs; nothing starts any more."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                process.kill()

    def _start(self, request: Mapping[str, Any]) -> subprocess.Popen[bytes] | None:
        threads = {"OMP_NUM_THREADS": str(request["num_threads"])}
        with self._lock:
            if self._is_stopped:
                return None
            # Tied to this thread, which outlives the cell: it waits for it.
            tied = [sys.executable, "-P", "-m", "graphs.tied", str(os.getpid())]
            process = subprocess.Popen(
                [*tied, "tfplace.bench.cell", json.dumps(request)],
                cwd="/",
                env={**child_environment(), **threads},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._running.add(process)
        return process
