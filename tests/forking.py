"""Where ranks and engines of tests fork from: a server that has imported modules and run nothing.

Importing torch takes longer than most tests, and a fork of pytest itself would copy locks of
threads that it does not copy. A process has one such server, so what it imports is listed here.
"""

import multiprocessing
from typing import Final

CONTEXT: Final = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.starts.loaded",
        "dlcp_client.ddp",
        "dlcp_client.cross_step",
        "dlcpd.io.engine",
        "tests.client.real",
        "tests.c10d.collectives",
        "tests.c10d.failures",
        "tests.c10d.programs",
        "tests.c10d.ranges_programs",
        "tests.client.fused_ranks",
        "tests.spmd.training_ranks",
    ]
)
