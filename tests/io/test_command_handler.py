"""Control's commands reach the parts of the engine that they concern, without sockets."""

from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest

from dlcpd.contract.errors import DlcpError
from dlcpd.io import commands
from dlcpd.io.command_handler import CommandHandler
from dlcpd.io.control_events import Alive

NOW = 1e12  # of the monotonic clock, seconds: no turn is ever over


class Parts:
    """The parts of an engine; `calls` has what they were asked for, in order."""

    def __init__(self, *waiting: commands.Command | None, broken: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.waiting = deque(waiting)
        self.emitted: list[Any] = []
        self.clients = Clients(self.calls)
        session = SimpleNamespace(number=1, detector=SimpleNamespace(doubt=self.doubt))
        self.broken = broken
        endpoint = SimpleNamespace(sessions={1: session}, counters=Counter[str]())
        whole: Any = SimpleNamespace
        self.handler = CommandHandler(
            endpoint,  # type: ignore[arg-type]  # a stand-in, like those below
            control=whole(receive=self.receive, emit=self.emitted.append),
            clients=self.clients,  # type: ignore[arg-type]
            reporter=whole(ask=lambda ledger: self.calls.append(("report", ledger))),
            opener=whole(open=lambda command, fds: self.calls.append(("open", command, fds))),
            stop=lambda at: self.calls.append(("stop", at)),
            find_routes=lambda session: self.calls.append(("routes", session.number)),
        )

    def receive(self) -> tuple[commands.Command | None, list[int]] | None:
        return (self.waiting.popleft(), [3, 4]) if self.waiting else None

    def doubt(self, rank: int, sign: str, _now: float) -> None:
        if self.broken:
            raise ValueError("a bug made on purpose")
        self.calls.append(("doubt", rank, sign))


class Clients(list[Any]):
    """No clients, and the calls for them."""

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self.calls, self.draining = calls, False

    def leave(self, number: int, error: DlcpError, _now: float) -> None:
        self.calls.append(("leave", number, error.code))

    def close(self, number: int, error: DlcpError) -> None:
        self.calls.append(("close", number, error.code))

    def fault(self, number: int, bug: Exception) -> None:
        self.calls.append(("fault", number, str(bug)))


OPEN = commands.OpenSession(1, "job", 0, 1, 1 << 16, [])
CASES: list[tuple[commands.Command | None, tuple[Any, ...]]] = [
    (OPEN, ("open", OPEN, [3, 4])),
    (commands.Stop(2.0), ("stop", NOW + 2.0)),
    (None, ("stop", NOW)),
    (commands.LeaveSession(1, "session_closed", "gone"), ("leave", 1, "session_closed")),
    (commands.CloseSession(1, "session_closed", "gone"), ("close", 1, "session_closed")),
    (commands.PeerDoubted(1, 2, "refused"), ("doubt", 2, "refused")),
    (commands.FindRoutes(1), ("routes", 1)),
]


@pytest.mark.parametrize(
    ("command", "call"), CASES, ids=[type(command).__name__ for command, _ in CASES]
)
def test_each_command_goes_to_its_part(
    command: commands.Command | None, call: tuple[Any, ...]
) -> None:
    parts = Parts(command)
    parts.handler.handle(0, NOW)
    assert parts.calls == [call]
    assert parts.clients.draining is isinstance(command, commands.Stop)


def test_a_session_that_is_gone_is_no_error() -> None:
    parts = Parts(commands.PeerDoubted(9, 2, "refused"), commands.FindRoutes(9))
    parts.handler.handle(0, NOW)
    assert parts.calls == []


def test_a_bug_in_one_session_ends_it_and_the_next_command_is_obeyed() -> None:
    parts = Parts(commands.PeerDoubted(1, 2, "refused"), commands.Stop(0.0), broken=True)
    parts.handler.handle(0, NOW)
    assert parts.calls == [("fault", 1, "a bug made on purpose"), ("stop", NOW)]


def test_a_question_is_answered_at_once_and_a_report_is_begun() -> None:
    parts = Parts(commands.AliveRequest(), commands.ReportRequest(10))
    parts.handler.handle(0, NOW)
    assert parts.emitted == [Alive()]
    assert parts.calls == [("report", 10)]


def test_commands_of_one_turn_end_with_its_time() -> None:
    parts = Parts(commands.Stop(0.0))
    parts.handler.handle(0, -1e12)  # the turn began long ago
    assert parts.calls == []
    assert parts.waiting
