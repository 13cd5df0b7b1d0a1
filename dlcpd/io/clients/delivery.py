"""Delivery after a client has left: its results go to peers before the session closes.

The engine has the arena by descriptor, so peers can take their parts of completed operations
although the client's process is gone. This ends when they have all, or after DELIVERY seconds.
"""

from typing import Final

from dlcpd.contract.messages import DELIVERY
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.session.session import Session
from dlcpd.core.timers import Timer
from dlcpd.io import commands, control_events
from dlcpd.io.control_link import ControlLink

MAX_LACKING: Final = 4  # operations named in one text


class Delivery:
    """The sessions of an engine whose clients have left."""

    def __init__(self, endpoint: Endpoint, control: ControlLink) -> None:
        self._endpoint, self._control = endpoint, control
        self._left: dict[int, Session] = {}  # by number; peers lack something of each

    def __bool__(self) -> bool:
        return bool(self._left)

    def begin(self, session: Session, now: float) -> None:
        """The client of a session has left, and its open operations have failed."""
        for rank in session.flows:
            rows = [commands.Begun(*row) for row in session.departures.begun_with(rank)]
            for at in range(0, len(rows) or 1, commands.MAX_BEGUN):
                part, rest = rows[at : at + commands.MAX_BEGUN], len(rows) - at
                last = rest <= commands.MAX_BEGUN
                self._control.emit(control_events.SessionLeft(session.number, rank, part, last))
        self._left[session.number] = session
        self._endpoint.timers.set((self, Timer.DELIVERY, session.number), now + DELIVERY)
        self.look()

    def look(self) -> None:
        """Report the sessions of which peers have all to control."""
        for number in [number for number, s in self._left.items() if not s.operations]:
            self._end(number, "")

    def handle_timer(self, timer: Timer, subject: int, now: float) -> None:
        """DELIVERY seconds are over."""
        self.end(subject)

    def end(self, number: int) -> None:
        """Stop the delivery of a session, and report what its peers lack."""
        if session := self._left.get(number):
            self._end(number, lacking(session))

    def end_all(self) -> None:
        """The engine stops."""
        for number in list(self._left):
            self.end(number)

    def forget(self, number: int) -> None:
        """A session has closed."""
        if self._left.pop(number, None):
            self._endpoint.timers.cancel((self, Timer.DELIVERY, number))

    def _end(self, number: int, text: str) -> None:
        self.forget(number)
        self._control.emit(control_events.SessionDelivered(number, text))


def lacking(session: Session) -> str:
    """The data that peers lack, in words; empty: none."""
    waits = [operation.awaited()[1] for operation in session.operations.values()]
    rest = f"; and {len(waits) - MAX_LACKING} more operations" if len(waits) > MAX_LACKING else ""
    return "; ".join(waits[:MAX_LACKING]) + rest
