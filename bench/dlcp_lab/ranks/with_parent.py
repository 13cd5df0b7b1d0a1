"""`dlcp_lab.ranks.with_parent PID MODULE ...`: a module that ends with its parent.

So no process remains when dlcpctl is killed. Not in a preexec_fn of the parent: that runs between
fork and exec, where a process with threads may deadlock.
"""

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def main() -> None:
    """Run the module with PR_SET_PDEATHSIG; exit status 1 if the parent has ended already."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the request above
        sys.exit(1)
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
