"""Runs pieces of work side by side, one thread each, until all are done or Ctrl-C comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from tfplace.interruption import Interrupted, interruptible

Item = TypeVar("Item")


def run_all(
    run: Callable[[Item], None], items: Iterable[Item], parallel: int, stop: Callable[[], None]
) -> bool:
    """Runs every item; returns whether the first Ctrl-C or SIGTERM ended it.

    Args:
      run: does one item; what it raises ends all.
      items: in the order in which they begin.
      parallel: at a time.
      stop: ends what runs, so that `run` returns; called at the end in any case.
    """
    with interruptible() as interruption, interruption.held(), ThreadPoolExecutor(parallel) as pool:
        futures = [pool.submit(run, item) for item in items]
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
            stop()
        return interruption.seen
