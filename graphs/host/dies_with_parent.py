"""`python -P -m graphs.host.dies_with_parent PARENT_PID MODULE ARGUMENTS`: runs MODULE.

The process is killed when the thread that started it ends. Nothing heavy is imported before it is
tied so.
"""

import ctypes
import os
import runpy
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def main(argv: Sequence[str]) -> None:
    """Ties this process to its parent and runs the module in place of this one."""
    parent, module, *arguments = argv
    run_tied(int(parent), module, arguments)


def run_tied(parent: int, module: str, arguments: Sequence[str]) -> None:
    """Ties this process, a child of `parent`, to it and runs the module in place of this one."""
    if where := os.environ.get("TFPLACE_NETWORK"):
        from graphs.host.own_network import enter

        enter(where)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
