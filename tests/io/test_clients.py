"""What control and clients of an engine hear, and in which order."""

from types import SimpleNamespace
from typing import Any, cast

from dlcpd.core.endpoint import Endpoint
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.session.events import OperationFailed, SessionBroken
from dlcpd.core.session.outcomes import Outcomes
from dlcpd.io import control_events
from dlcpd.io.clients.clients import Clients


def test_control_hears_of_failures_before_the_client_that_may_leave_because_of_them() -> None:
    heard: list[Any] = []
    control = SimpleNamespace(emit=heard.append)
    poll = SimpleNamespace(watch=lambda *_: None)
    clients = Clients(
        Endpoint(1152, 1 << 20, SendScheduler(Pacer(0.0))),
        cast(Any, control),
        cast(Any, poll),
        trouble=lambda _: "; paths are narrow",
        forget=lambda _: None,
    )

    def send(message: Any) -> bool:
        heard.append(message)
        return True

    lane = SimpleNamespace(backlog=[], send=send)
    session = SimpleNamespace(number=7, outcomes=Outcomes(7))
    session.outcomes.totals.failed["peer_lost"] = 20
    clients.add(cast(Any, SimpleNamespace(session=session, lane=lane, left=False)))
    failed = [OperationFailed(7, n, "peer_lost", "x", 0, n, (1,)) for n in range(20)]
    clients.tell(7, [*failed, SessionBroken(7, 1, "peer_lost", "y")])
    kinds = [type(message).__name__ for message in heard]
    assert kinds == ["OperationsFailed"] * 2 + ["SessionFailed"] + ["Failed"] * 21
    assert isinstance(heard[0], control_events.OperationsFailed)
    assert heard[2] == control_events.SessionFailed(
        7, 1, "peer_lost", "y; paths are narrow", failed=20
    )
    assert heard[0].failures[0].text == "x; paths are narrow"
    assert [len(event.failures) for event in heard[:2]] == [16, 4]
