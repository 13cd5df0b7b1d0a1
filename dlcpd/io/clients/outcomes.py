"""Outcomes of operations as clients and peers are told them."""

from dlcpd.contract.errors import NOBODY, Peer, PeerLost
from dlcpd.contract.messages import MAX_AWAITING, Completed, Failed
from dlcpd.core.session.events import Event, MessageWithdrawn, OperationDone, OperationFailed
from dlcpd.core.session.session import Session
from dlcpd.io import control_events


def as_lost(event: Event, session: Session) -> Event:
    """A failure as peers see it: to them, a rank whose session closes is lost."""
    if isinstance(event, OperationFailed) and event.peer == NOBODY:
        return event._replace(code=PeerLost.code, peer=Peer(session.rank))
    return event


def for_peers(failed: OperationFailed | MessageWithdrawn) -> control_events.FailedOperation:
    """A failure that control tells the peers."""
    return control_events.FailedOperation(
        failed.stream,
        failed.number,
        list(failed.ranks),
        failed.code,
        failed.text[: control_events.MAX_FAILURE_TEXT],
        failed.peer.rank,
    )


def failed_message(number: int, code: str, text: str, peer: Peer) -> Failed:
    """A failure for the client; `number` 0: of the session."""
    return Failed(number, code, text, *peer._replace(awaiting=peer.awaiting[:MAX_AWAITING]))


def completed(done: OperationDone, released: list[int]) -> Completed:
    """A result for the client, and earlier operations whose memory is `released`."""
    stats = done.stats
    return Completed(
        done.ticket,
        done.released,
        stats.sent,
        stats.retransmitted,
        stats.waived,
        stats.reapplied,
        stats.lost,
        min(stats.energy, 1.0),
        done.source,
        released,
    )
