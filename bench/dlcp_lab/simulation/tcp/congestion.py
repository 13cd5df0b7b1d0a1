"""The interface between a connection and its congestion control."""

from dataclasses import dataclass
from typing import Final, Protocol

INITIAL: Final = 10.0  # segments, RFC 6928


@dataclass(frozen=True, slots=True)
class Ack:
    """Segments that an acknowledgement reported for the first time. Times are seconds."""

    now: float
    acked: int  # segments
    round_trip: float  # of the newest of them
    least_round_trip: float  # of the connection
    in_flight: int  # segments, after it
    window_full: bool  # the window, not the application, limited the sender
    recovering: bool  # losses of an earlier round are being retransmitted
    delivered: int  # segments so far
    delivered_before: int  # when the newest of them was sent
    rate: float  # segments per second, since then
    application_limited: bool  # the application had nothing to send then


class Congestion(Protocol):
    """`window`: segments that may be in flight. `pace`: segments per second; infinite: none."""

    window: float
    pace: float

    def on_ack(self, ack: Ack) -> None:
        """Segments have arrived."""

    def on_loss(self, now: float) -> None:
        """A segment was lost, the first one since the last recovery."""

    def on_timeout(self, now: float) -> None:
        """No acknowledgement came: all in flight counts as lost."""

    def on_idle(self, now: float) -> None:
        """Data are sent again after a pause longer than the timeout (RFC 9293, section 3.8.6)."""
