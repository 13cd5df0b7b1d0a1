"""Requests of `dlcpctl` to a daemon, over its session socket."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from dlcpd.contract.errors import BadConfig, BadMessage, DaemonUnavailable, NotPermitted, error_for
from dlcpd.contract.frames import decode_untrusted, encode_for
from dlcpd.contract.inquiries import Status, StatusRequest
from dlcpd.contract.messages import MAX_FRAME, SERVED, Hello, Message, Refused, Welcome
from dlcpd.daemon.config.tables import DaemonTable
from dlcpd.inspection.private import reach
from dlcpd.ipc.seqpacket import connect

TIMEOUT: Final = 15.0  # seconds per packet; a daemon waits three for its engine
Answer = TypeVar("Answer", bound=Message)


class Conversation:
    """With the daemon that listens at `path`. None: at the usual socket, or, if none listens there,
    with a private daemon of this user. `timeout`: seconds for a packet. Use as a context manager.

    Raises, here and in `ask`: DaemonUnavailable, NotPermitted, BadMessage, or the daemon's refusal;
    here, BadConfig if there are several private ones.
    """

    def __init__(self, path: str | None, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._path, self._any = path or DaemonTable().socket, path is None
        with self._named():
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with self._named():
                connect(self._sock, reach(path), timeout)
            self._greet()
        except BaseException:
            self._sock.close()
            raise

    def ask(self, request: Message, wanted: type[Answer]) -> Answer:
        """The answer to a request, of the type `wanted`. Raises: BadConfig for a text of the
        command line that is not UTF-8, too."""
        try:
            data = encode_for(self._version, request)
        except UnicodeEncodeError as exc:
            raise BadConfig(f"a text for the daemon is not UTF-8: {exc.object!r}") from exc
        with self._named():
            self._sock.sendall(data)
        return self._next(wanted, request)

    def _greet(self) -> None:
        """In the newest version that both speak: a package of a newer release may have been
        installed beside a running daemon."""
        refusals = []
        for self._version in SERVED:
            try:
                self.ask(Hello(self._version, f"dlcpctl[{os.getpid()}]"), Welcome)
                return
            except BadMessage as exc:
                refusals.append(exc)
        raise refusals[0]

    def status(self, ledger: int) -> dict[str, Any]:
        """The daemon's report, with `ledger` rows of its ledger; keys in docs/ipc.md, "Status"."""
        request, before = StatusRequest(ledger), bytearray()
        part = self.ask(request, Status)
        while part.left:
            before += part.report
            part, last = self._next(Status, request), part
            if part.left != last.left - 1:
                raise BadMessage("the daemon sent a part of a report out of order")
        return part.read(bytes(before))

    def _next(self, wanted: type[Answer], request: Message) -> Answer:
        """The next packet, which answers `request`."""
        with self._named():
            data = self._sock.recv(MAX_FRAME + 1)
        if not data:
            raise DaemonUnavailable("the daemon closed the connection; see its log")
        answer = decode_untrusted(data)
        if isinstance(answer, Refused):
            raise error_for(answer.code, answer.text)
        if not isinstance(answer, wanted):
            raise BadMessage(
                f"the daemon answered {type(request).__name__} with {type(answer).__name__}"
            )
        return answer

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of the socket as DlcpErrors, which name the path."""
        path = self._path
        try:
            yield
        except PermissionError as exc:
            raise NotPermitted(f"{path}: user id {os.getuid()} may not connect") from exc
        except TimeoutError as exc:
            raise DaemonUnavailable(
                f"{path}: the daemon did not answer within {self._timeout:g} s; see its log"
            ) from exc
        except OSError as exc:
            why = exc.strerror or exc  # a path that is too long for a socket has no number
            private = (
                ", nor a private daemon of this user in this network namespace" if self._any else ""
            )
            raise DaemonUnavailable(
                f"{path}: no daemon answers ({why}){private}; start it (systemctl start "
                "dlcpd, or dlcpd --config FILE), or give its socket with --socket"
            ) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _exc: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._sock.close()
