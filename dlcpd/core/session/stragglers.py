"""Peers that operations wait for: which, since when, and whether they or their paths are silent."""

from typing import Final, NamedTuple

from dlcpd.core.session.session import Session

LATE: Final = 1.0  # seconds; a shorter wait is not reported
MAX_STRAGGLERS: Final = 8  # of a session, in one report


class Straggler(NamedTuple):
    """A peer that the session waits for."""

    rank: int
    host: str
    address: str  # UDP address and port of its first path
    late: float  # seconds that the oldest operation has waited for it
    silent: float  # seconds since its engine was heard; small: its trainer is late, not the network
    paths_down: tuple[int, ...]  # that carry no data towards it
    awaiting: str  # what the operation waits for, in words


def stragglers(session: Session, now: float) -> list[Straggler]:
    """The late peers, each with the operation that has waited for it for longest."""
    found: dict[int, Straggler] = {}
    for operation in session.operations.values():  # in the order in which they began
        if operation.done or now - operation.begun < LATE:
            continue
        awaited, text = operation.awaited()
        for rank in sorted(awaited - found.keys()):
            if len(found) == MAX_STRAGGLERS:
                return list(found.values())
            flow = session.flows[rank]
            found[rank] = Straggler(
                rank,
                flow.host,
                flow.address,
                now - operation.begun,
                now - flow.heard_at,
                tuple(at for at, path in enumerate(flow.paths.tx) if not path.up),
                text,
            )
    return list(found.values())
