"""Runs over many items, several at a time, that can be killed at any moment and then go on.

A batch's jobs and a bench's cells are such items. Each has a row: what is known of it. All rows
are written whenever one changes, so the next run knows which items are done and does the others.
"""

import abc
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Generic, TypeVar

from graphs.errors import TfplaceError
from tfplace.interruption import Interrupted, interruptible
from tfplace.runs.executors.program import Ended, Executor, Program

Row = TypeVar("Row")
Tell = Callable[[Row, int, int], None]  # a row that is new, and how many of how many have ended

_LOGGER = logging.getLogger(__name__)


class ResumableRun(abc.ABC, Generic[Row]):
    """A run over items that are independent of each other.

    Attributes:
      rows: what is known of each item, in their order.
      is_interrupted: whether Ctrl-C or SIGTERM ended the run.
    """

    def __init__(self, rows: Sequence[Row], executor: Executor, tell: Tell[Row]) -> None:
        """Runs nothing yet; `tell` is told of each written change, by one thread at a time."""
        self.rows = list(rows)
        self.is_interrupted = False
        self._executor, self._tell = executor, tell
        self._lock = threading.Lock()

    @abc.abstractmethod
    def is_ended(self, row: Row) -> bool:
        """Whether there is nothing left to do for the item of this row."""

    @abc.abstractmethod
    def work(self, index: int) -> Iterator[Row]:
        """Works on one item and yields its row after each change.

        Where the executor was stopped, the item's last row is missing: the next run does it again.
        """

    @abc.abstractmethod
    def keep(self) -> None:
        """Writes all rows; each file is whole at any moment."""

    def run(self, parallel: int) -> None:
        """Works on all items that have not ended, `parallel` at a time, or until Ctrl-C."""
        self.keep()
        due = [index for index, row in enumerate(self.rows) if not self.is_ended(row)]
        with (
            interruptible() as interruption,
            interruption.held(),
            ThreadPoolExecutor(parallel) as pool,
        ):
            futures = [pool.submit(self._run_item, index) for index in due]
            try:
                with interruption.raising():
                    for future in as_completed(futures):
                        future.result()
            except Interrupted:
                pool.shutdown(wait=False, cancel_futures=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            finally:
                self._executor.stop()
            self.is_interrupted = interruption.seen
        self.keep()

    def _run_item(self, index: int) -> None:
        for row in self.work(index):
            with self._lock:
                self.rows[index] = row
                self.keep()
                self._tell(row, sum(map(self.is_ended, self.rows)), len(self.rows))

    def _ended(self, program: Callable[[], Program]) -> Ended | None:
        """How one item's program ended, which fails alone; None where it was stopped."""
        try:
            return self._executor.run(program())
        except TfplaceError as error:
            return Ended(error.exit_status, b"", "", str(error))
        except Exception as error:  # a defect that one item meets must not end the others
            _LOGGER.exception("running one of many")
            return Ended(-1, b"", "", f"a defect of tfplace: {type(error).__name__}: {error}")
