"""A rank process: `dlcp_lab.ranks.rank --fd N`, started by dlcp_lab.ranks.launch.

Reads one line, {"module": ..., "arguments": ...}, runs that module's `run` and answers with lines:
["progress", text], ["arrived", where], and at the end ["result", value] or
["error", code, text]. The answer to "arrived" is the time at which all ranks continue.
"""

import argparse
import importlib
import json
import os
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from dlcpd.contract.errors import DlcpError

if TYPE_CHECKING:
    from collections.abc import Callable


class Conductor:
    """The process that started the ranks, seen from one of them."""

    def __init__(self, connection: socket.socket) -> None:
        self._lines = connection.makefile("rwb")
        self.rank = int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        self.daemon = os.environ["DLCPD_SOCKET"]  # session socket
        self.store = os.environ["DLCPCTL_STORE"]  # file that all ranks can open

    def task(self) -> dict[str, Any]:
        """The module to run, and its arguments."""
        task: dict[str, Any] = json.loads(self._lines.readline())
        return task

    def progress(self, text: str) -> None:
        """Send a line of progress; only rank 0's are shown."""
        self._say("progress", text)

    def barrier(self, where: str = "barrier") -> float:
        """Wait for all ranks; all leave at the same time, to the microsecond. Returns that time, of
        the monotonic clock: equal on all ranks.

        Raises: EOFError when the conductor has ended.
        """
        self._say("arrived", where)
        line = self._lines.readline()
        if not line:
            raise EOFError("dlcpctl ended")
        start = float(line)
        while time.monotonic() < start:  # the clock is the machine's: equal in all processes
            pass
        return start

    def result(self, value: Any) -> None:
        """Send the result, the last message."""
        self._say("result", value)

    def error(self, code: str, text: str) -> None:
        """Send an error, the last message."""
        self._say("error", code, text)

    def _say(self, *message: Any) -> None:
        self._lines.write(json.dumps(message).encode() + b"\n")
        self._lines.flush()


def main() -> int:
    """Run the module that the conductor names."""
    parser = argparse.ArgumentParser(prog="dlcp_lab.ranks.rank")
    parser.add_argument("--fd", type=int, required=True)
    conductor = Conductor(socket.socket(fileno=parser.parse_args().fd))
    task = conductor.task()
    try:
        job: Callable[[Conductor, dict[str, Any]], Any] = importlib.import_module(
            task["module"]
        ).run
        conductor.result(job(conductor, task["arguments"]))
    except DlcpError as exc:
        conductor.error(exc.code, str(exc))
        return 1
    except Exception as exc:  # torch wraps errors; each must be reported
        traceback.print_exc()
        conductor.error(DlcpError.code, f"{type(exc).__name__}: {exc}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
