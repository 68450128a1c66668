"""A way to train, seen from the comparison: one process or two, all that goes wrong an error."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphs.host.child import Child, start_child
from graphs.op_graph import FloatArray
from tests.rival.ways import MULTI_WORKER, Prepare
from tfplace.measurement.workers import free_addresses

_PREPARE_SECONDS, _STEP_SECONDS = 150.0, 30.0


class RivalError(Exception):
    """A way to train could not be started or has failed; the message says how."""


class Contestant(contextlib.AbstractContextManager["Contestant"]):
    """The processes of one way to train; they end with the block.

    Attributes:
      way: its name.
    """

    def __init__(self, way: str, cores: Sequence[int]) -> None:
        """Starts them; they import TensorFlow meanwhile.

        Args:
          way: one of `ways`.
          cores: what it runs on, one thread each; empty: wherever and as TensorFlow likes, which
            is for a process that only calls tfplace's workers.
        """
        self.way = way
        addresses = free_addresses(len(cores)) if way == MULTI_WORKER else []
        each = [[core] for core in cores] if way == MULTI_WORKER else [cores]
        self._children: list[Child] = []
        try:
            for task, own in enumerate(each):
                words = [way, ",".join(map(str, own)), str(task), *addresses]
                self._children.append(start_child("tests.rival.child", words))
        except BaseException:
            self.close()
            raise

    def prepare(self, model: str, num_steps: int, path: str = "") -> None:
        """Begins to build a model and to make its first steps; `losses` waits for them."""
        self._send(Prepare(model, num_steps, path))

    def losses(self) -> list[float]:
        """Of the first steps, of the whole batch; raises RivalError."""
        self._answers(_PREPARE_SECONDS)  # it is built
        return list(self._answers(_PREPARE_SECONDS)[0])

    def begin_steps(self, num_steps: int) -> None:
        """Begins them; `seconds` waits for them."""
        self._send(num_steps)

    def seconds(self, num_steps: int) -> FloatArray:
        """f8[num_steps] of each step, until the last process is done; raises RivalError."""
        timeout = _STEP_SECONDS + 3.0 * num_steps
        return np.max(np.array(self._answers(timeout), np.float64), axis=0)

    @property
    def process_ids(self) -> list[int]:
        """Of what was started here."""
        return [child.process.pid for child in self._children]

    def _send(self, asked: Any) -> None:
        for child in self._children:
            with contextlib.suppress(ConnectionError):  # the answer says how it ended
                child.connection.send(asked)

    def _answers(self, timeout_seconds: float) -> list[Any]:
        answers = []
        for number, child in enumerate(self._children):
            where = f"{self.way}, process {number + 1} of {len(self._children)}"
            try:
                answer = child.receive(timeout_seconds)
            except TimeoutError:
                raise RivalError(f"{where}: no answer within {timeout_seconds:g} s") from None
            except EOFError:
                raise RivalError(f"{where} has ended, {child.end_text()}") from None
            if isinstance(answer, str):
                raise RivalError(f"{where}: {answer}")
            answers.append(answer)
        return answers

    def close(self) -> None:
        """Ends its processes; may be called twice."""
        for child in self._children:
            child.end()

    def __exit__(self, *error: object) -> None:
        self.close()
