"""--checkpoint_dir: where a search keeps itself after every update of its policy.

`search.npz` is the state, replaced at one instant. `trials.jsonl` has a line for each evaluated
placement and only grows; the state says how much of it belongs to the search. `costs.npy` holds the
ops' costs of the first run: measured anew, they would be a little different, and so would be every
trial.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np

from graphs.errors import CheckpointError, OutputError
from graphs.op_graph import FloatArray, IntArray
from graphs.problem import Measurement, Problem
from graphs.problem_file import write_problem
from tfplace.output_paths import write_file
from tfplace.search.kept.state import SearchState, from_arrays, to_arrays
from tfplace.search.trial import Trial

KIND, VERSION = "tfplace search", 3
STATE_FILE, TRIALS_FILE, COSTS_FILE = "search.npz", "trials.jsonl", "costs.npy"


class SearchFolder:
    """Keeps one search; whoever uses it holds the folder (tfplace.search.kept.folder)."""

    def __init__(self, folder: str, identity: Mapping[str, object]) -> None:
        """Reads what is there.

        Args:
          folder: that exists.
          identity: what has to be the same for a search to go on: {what: value}.

        Raises:
          CheckpointError: what is there is damaged, or another search's.
        """
        self._folder = Path(folder)
        self._identity = dict(identity)
        self._pending: list[str] = []
        self._start: IntArray | None = None
        self._num_bytes = 0
        self.state: SearchState | None = None
        if (self._folder / STATE_FILE).exists():
            self._read()
        self._trim_trials()

    def costs(self, op_seconds: FloatArray) -> FloatArray:
        """Costs f8[N, D] of the first run, which this may be; CheckpointError: they are damaged."""
        path = self._folder / COSTS_FILE
        if self.state is None:
            content = io.BytesIO()
            np.save(content, op_seconds, allow_pickle=False)
            write_file(str(path), content.getvalue(), overwrite=True)
            return op_seconds
        try:
            found = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            self._refuse(f"its {COSTS_FILE} can't be read ({error})")
        is_same_kind = found.shape == op_seconds.shape and found.dtype == op_seconds.dtype
        if not is_same_kind or (np.isfinite(found) != np.isfinite(op_seconds)).any():
            self._refuse(f"its {COSTS_FILE} holds no costs of this model")
        return np.asarray(found)

    def start(self, best_known: IntArray | None) -> IntArray | None:
        """i4[N] what the first run went on from; this, where this is it."""
        if self.state is None:
            self._start = best_known
        return self._start

    def note_trial(self, trial: Trial) -> None:
        """Takes a line of trials.jsonl, which `save` writes."""
        outcome = trial.outcome
        is_number = isinstance(outcome, Measurement) and math.isfinite(outcome.step_seconds)
        seconds = outcome.step_seconds if is_number else None
        line = {"trial": trial.index, "seconds": round(trial.seconds, 6), "step_seconds": seconds,
                "placement": digest(trial.placement.device_of_op)}  # fmt: skip
        self._pending.append(json.dumps(line) + "\n")

    def save(self, state: SearchState) -> None:
        """Keeps the state, and with it the trials so far.

        Raises:
          OutputError: the folder can't be written to any more.
        """
        if self._pending:
            content = "".join(self._pending).encode()
            with (self._folder / TRIALS_FILE).open("ab") as file:
                file.write(content)
            self._num_bytes += len(content)
            self._pending.clear()
        facts = {"kind": KIND, "version": VERSION, "identity": self._identity,
                 "num_bytes": self._num_bytes}  # fmt: skip
        arrays = to_arrays(state, facts)
        if self._start is not None:
            arrays["start"] = self._start
        content_of_state = io.BytesIO()
        np.savez(content_of_state, allow_pickle=False, **arrays)  # type: ignore[arg-type]
        write_file(str(self._folder / STATE_FILE), content_of_state.getvalue(), overwrite=True)

    def _read(self) -> None:
        try:
            with np.load(self._folder / STATE_FILE, allow_pickle=False) as file:
                arrays = {key: file[key] for key in file.files}
            facts = json.loads(str(arrays.pop("facts")))
            kind, version, identity = facts["kind"], facts["version"], dict(facts["identity"])
        except Exception as error:  # zip and numpy raise many kinds at bytes that aren't theirs
            self._refuse(f"its {STATE_FILE} can't be read ({error})")
        if (kind, version) != (KIND, VERSION):
            self._refuse(f"its {STATE_FILE} is of kind {kind!r}, version {version!r}")
        for what, value in self._identity.items():
            if identity.get(what) != value:
                self._refuse(f"it was made with {what} {identity.get(what)}, this is {value}")
        try:
            self.state = from_arrays(arrays, facts)
            self._start = arrays.get("start")
            self._num_bytes = int(facts["num_bytes"])
        except (KeyError, TypeError, ValueError) as error:
            self._refuse(f"its {STATE_FILE} lacks something or has it of another kind ({error})")

    def _trim_trials(self) -> None:
        """Takes away lines that a killed run wrote after its last state."""
        path = self._folder / TRIALS_FILE
        size = path.stat().st_size if path.exists() else 0
        if size < self._num_bytes:
            self._refuse(f"its {TRIALS_FILE} is shorter than it was")
        if size > self._num_bytes:
            with path.open("r+b") as file:
                file.truncate(self._num_bytes)

    def _refuse(self, found: str) -> NoReturn:
        raise CheckpointError(
            f"going on with the search in {self._folder}: {found}; give the same model and flags "
            f"as before, another --checkpoint_dir, or remove {self._folder / STATE_FILE}"
        )


def problem_digest(problem: Problem) -> str:
    """Of all that a problem is, but the ops' costs."""
    content = io.BytesIO()
    write_problem(content, problem, np.zeros(problem.num_ops, dtype=np.int32))
    content.seek(0)
    found = hashlib.sha256()
    with np.load(content, allow_pickle=False) as arrays:
        for name in sorted(set(arrays.files) - {"op_seconds"}):
            found.update(f"{name}{arrays[name].dtype}{arrays[name].shape}".encode())
            found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()[:16]


def digest(device_of_op: IntArray) -> str:
    """Of a placement i4[N], to tell whether two are the same."""
    return hashlib.blake2b(np.ascontiguousarray(device_of_op).tobytes(), digest_size=8).hexdigest()


LOCK_FILE = ".lock"


@contextlib.contextmanager
def locked_folder(folder: Path, doing: str, flag: str) -> Iterator[None]:
    """Makes the folder and holds it.

    Args:
      doing: "writing the batch to x", the beginning of a message.
      flag: that names another folder.

    Raises:
      OutputError: it can't be written, or another process holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise OutputError(f"{doing}: {error.strerror}; give another {flag}") from None
    try:
        with contextlib.suppress(OSError):  # a file system without locks has nobody to wait for
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(
                    f"{doing}: another process of tfplace is at work there; wait for its end, or "
                    f"give another {flag}"
                ) from None
        yield
    finally:
        os.close(lock)
