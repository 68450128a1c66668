"""Where independent pieces of work run: in processes of this host, or on the nodes of Ray."""

import contextlib
from collections.abc import Iterator

from graphs.errors import UsageError
from tfplace.runs.executors.program import Executor


@contextlib.contextmanager
def executor_for(name: str, ray_address: str | None) -> Iterator[tuple[Executor, int | None]]:
    """Gives the executor, and how much it can run at a time; None where this host decides that.

    Args:
      name: "local" or "ray".
      ray_address: as for RayExecutor.

    Raises:
      UsageError: Ray is not there, or an address was given for nothing.
    """
    if name == "local":
        if ray_address is not None:
            raise UsageError(
                f"reading --ray_address={ray_address}: it needs --executor=ray; give both or none"
            )
        from tfplace.runs.executors.local import LocalExecutor

        yield LocalExecutor(), None
        return
    from tfplace.runs.executors.ray_cluster import RayExecutor

    executor = RayExecutor(ray_address)
    try:
        yield executor, executor.num_cpus
    finally:
        executor.close()
