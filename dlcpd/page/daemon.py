"""Requests of the page to its daemon, shared by all browsers."""

import threading
import time
from typing import Any, Final

from dlcpd.contract.errors import TooMany
from dlcpd.daemon.config.tables import DaemonTable
from dlcpd.inspection.conversation import Conversation
from dlcpd.inspection.recording import record
from dlcpd.inspection.report import alarms

FRESH: Final = 1.0  # seconds for which further requests get the same report
LEDGER: Final = 200  # newest rows of the ledger: losses by tensor of the latest operations
RECORDING: Final = 20  # seconds to wait for the steps; the user waits
MAX_STEPS: Final = 20  # of a recording for the page; `dlcpctl trace` allows more
Document = dict[str, Any]


class Daemon:
    """The daemon at `socket`, as for Conversation. Thread-safe."""

    def __init__(self, socket: str | None) -> None:
        self._socket = socket
        self.name = socket or DaemonTable().socket
        self._asking, self._recording = threading.Lock(), threading.Lock()
        self._newest: Document = {}
        self._at = float("-inf")

    def status(self) -> Document:
        """The report as of `dlcpctl status --json`, and its alarms.

        Raises: as Conversation does.
        """
        with self._asking:
            if time.monotonic() - self._at > FRESH:
                with Conversation(self._socket) as daemon:
                    report = daemon.status(LEDGER)
                self._newest = {
                    "report": _for_browsers(report),
                    "alarms": list(alarms(report)),
                    "socket": self.name,
                }
                self._at = time.monotonic()
            return self._newest

    def trace(self, steps: int) -> Document:
        """Record `steps` steps as `dlcpctl trace` does.

        Raises: as Conversation does; TooMany while another request records.
        """
        if not self._recording.acquire(blocking=False):
            raise TooMany("another browser is recording a trace; try again when it has finished")
        try:
            with Conversation(self._socket) as daemon:
                recorded = record(daemon, steps, RECORDING)
        finally:
            self._recording.release()
        return {"steps": recorded.steps, "full": recorded.full, "trace": recorded.document}


def _for_browsers(report: Document) -> Document:
    """Session numbers as text: they have 64 bits, JavaScript's numbers 53."""
    sessions = [row | {"session": str(row["session"])} for row in report["sessions"]]
    return report | {"sessions": sessions}
