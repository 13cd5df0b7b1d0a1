"""The session socket: Hello and Welcome, then Join and Joined."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from dlcpd.contract.errors import (
    BadMessage,
    DaemonUnavailable,
    DlcpError,
    NotPermitted,
    error_for,
)
from dlcpd.contract.frames import encode_checked
from dlcpd.contract.inquiries import Status, StatusRequest
from dlcpd.contract.messages import VERSION, Hello, Join, Joined, Message, Refused, Welcome
from dlcpd.ipc.seqpacket import MAX_DESCRIPTORS, close_all, connect, receive_message

STATUS_TIMEOUT: Final = 3.0  # seconds; the control process gives its engine one
JOIN_MARGIN: Final = 2.0  # seconds after Join.timeout within which the daemon must answer


class ControlConnection:
    """One connection to a daemon's session socket.

    `how_it_ended` returns what is known about the end of a daemon that is gone.
    """

    def __init__(self, sock: socket.socket, how_it_ended: Callable[[], str]) -> None:
        self.socket, self.how_it_ended = sock, how_it_ended
        self.session = 0  # number of the session, after `join`
        self._asking = threading.Lock()

    @classmethod
    def open(cls, path: str, timeout: float) -> Self:
        """Connect to the daemon that listens at `path`.

        Raises: DaemonUnavailable or NotPermitted.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connect(sock, path, timeout)
        except OSError as exc:
            sock.close()
            if isinstance(exc, PermissionError):
                raise NotPermitted(
                    f"{path}: user {os.getuid()} has no permission to connect; join the group "
                    "of that socket, or unset DLCPD_SOCKET to start a private daemon"
                ) from exc
            raise DaemonUnavailable(
                f"no daemon answers at {path}: {exc.strerror or exc}; start the daemon (dlcpd "
                "--config FILE) or unset DLCPD_SOCKET to start a private daemon"
            ) from exc
        return cls(
            sock, lambda: f"the daemon at {path} closed the session; see the log of the daemon"
        )

    def hello(self, timeout: float) -> Welcome:
        """Introduce this process.

        Raises: DaemonUnavailable, or the error with which the daemon refused.
        """
        name = f"{Path(sys.argv[0]).name or 'python'}[{os.getpid()}]"
        answer, descriptors = self._ask(Hello(VERSION, name[-256:]), timeout)
        close_all(descriptors)
        if not isinstance(answer, Welcome):
            raise BadMessage(
                f"the daemon answered Hello with {type(answer).__name__}: run the same version "
                "of dlcpd and dlcp_client"
            )
        return answer

    def join(self, request: Join) -> tuple[int, int, list[int]]:
        """Become a rank. Returns arena bytes, arena descriptor, lane descriptors by engine.

        Raises: DaemonUnavailable, or the error with which the daemon refused.
        """
        answer, descriptors = self._ask(request, request.timeout + JOIN_MARGIN)
        if not isinstance(answer, Joined) or not 2 <= len(descriptors) <= MAX_DESCRIPTORS:
            close_all(descriptors)
            raise BadMessage(
                f"the daemon answered Join with {type(answer).__name__} and {len(descriptors)} "
                "descriptors: run the same version of dlcpd and dlcp_client"
            )
        self.session = answer.session
        arena, *lanes = descriptors
        return answer.arena_bytes, arena, lanes

    def report(self, timeout: float = STATUS_TIMEOUT) -> dict[str, Any]:
        """The daemon's status report; {} on a timeout, or while another thread asks."""
        if not self._asking.acquire(blocking=False):  # the daemon takes one request at a time
            return {}
        try:
            answer, descriptors = self._ask(StatusRequest(0), timeout)
            before = bytearray()
            close_all(descriptors)
            part: Message | None = answer
            while isinstance(part, Status) and part.left:
                before += part.report
                part, descriptors = receive_message(self.socket)
                close_all(descriptors)
            return part.read(bytes(before)) if isinstance(part, Status) else {}
        except (DlcpError, OSError):  # or the socket was closed meanwhile
            return {}
        finally:
            self._asking.release()

    def waiting_for(self) -> str:
        """The transfers that the session's operations wait for; "" without an answer in time."""
        engine = self.report().get("engine", {})
        session = engine.get("sessions", {}).get(str(self.session), {})
        texts = [*map(str, session.get("waiting", [])), *map(_where, session.get("late", []))]
        return "; ".join(texts)

    def close(self) -> None:
        """Disconnect; the daemon then drops this client."""
        self.socket.close()

    def _ask(self, request: Message, timeout: float) -> tuple[Message, list[int]]:
        """The answer; Refused is raised as its error."""
        started = time.monotonic()
        self.socket.settimeout(timeout)
        try:
            self.socket.sendall(encode_checked(request))
            answer, descriptors = receive_message(self.socket)
        except TimeoutError:
            waited = time.monotonic() - started
            raise DaemonUnavailable(
                f"the daemon did not answer {type(request).__name__} within {waited:.1f} s; it "
                "is stopped, starved of CPU or out of descriptors: see the log of the daemon"
            ) from None
        except OSError:
            answer, descriptors = None, []
        if answer is None:
            raise DaemonUnavailable(
                f"the daemon ended before the session began: {self.how_it_ended()}"
            )
        if isinstance(answer, Refused):
            close_all(descriptors)
            raise error_for(answer.code, answer.text)
        return answer, descriptors


def _where(late: dict[str, Any]) -> str:
    """Describe a late peer: its address, and whether it or a path to it is silent."""
    down = "".join(f", path {path} is down" for path in late["paths_down"])
    return (
        f"rank {late['rank']} is on {late['host']}, UDP {late['address']}; its dlcpd last "
        f"answered {late['silent']:.1f} s ago{down}"
    )
