"""The state of an engine, as plain values for `dlcpctl status`."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from msgspec.msgpack import Encoder

from dlcpd.collectives.loss.accounts import Accounts, LedgerRow
from dlcpd.contract.forms import plain
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.session.stragglers import Straggler, stragglers
from dlcpd.io.control_frames import MAX_COMMAND
from dlcpd.io.discovery.mtu import MtuDiscovery
from dlcpd.io.report_rows import (
    CLASS,
    PATH,
    PEER,
    SESSION,
    PathSource,
    PeerSource,
    SessionOrigin,
    values,
)
from dlcpd.io.udp.udp_path import UdpPath

MAX_WAITING: Final = 3  # oldest open operations of a session; the others mostly wait alike
MAX_REPORT: Final = MAX_COMMAND - 1024  # bytes; the frame around it is small
MAX_TEXT: Final = 512  # characters of a text, which may list every rank
FOR_ALARMS: Final = MAX_REPORT // 4  # bytes that heads of sessions leave to peers in alarm
_encode: Final = Encoder(enc_hook=plain).encode
LISTS: Final = 64  # bytes that msgpack takes for the number of a session and its long lists


@dataclass(slots=True)
class _Room:
    """The bytes that are left in a packet."""

    left: int
    short: bool = False  # something did not fit

    def fill(self, rows: list[Any], more: Iterable[Any], around: int = 0) -> None:
        """Append rows that fit with `around` bytes for each, in order. No row is made after the
        first that does not fit: thousands of peers would keep the engine busy for seconds."""
        for row in more:
            size = len(_encode(row)) + around
            if size > self.left:
                self.short = True
                return
            self.left -= size
            rows.append(row)


def bounded_report(
    endpoint: Endpoint,
    paths: list[UdpPath],
    mtu: MtuDiscovery,
    accounts: dict[int, Accounts],
    ledger: int,
) -> dict[str, Any]:
    """Counters, paths, sessions and the newest `ledger` rows of each session, in one frame.

    Each part is measured before it is added: totals of sessions first, then the peers with an
    alarm, the peers that operations wait for, the other peers, and ledger rows. If something did
    not fit, the report says so (`truncated`).
    """
    whole: dict[str, Any] = {
        "counters": _counters(endpoint, paths),
        "effort": dict(endpoint.effort),
        "paths": [
            {
                "address": list(path.address),
                "gso": path.gso,
                "gro": path.receiver.gro,
                "receive_buffer": path.receive_buffer,
            }
            for path in paths
        ],
        "sessions": {},
    }
    known = {number: accounts.get(number) or Accounts() for number in endpoint.sessions}
    room = _Room(MAX_REPORT - len(_encode(whole)) - FOR_ALARMS)
    heads: list[dict[str, Any]] = []
    room.fill(heads, (_session(s, known[s.number]) for s in endpoint.sessions.values()), LISTS)
    room.left += FOR_ALARMS
    shown = list(zip(endpoint.sessions.values(), heads, strict=False))
    whole["sessions"] = {str(session.number): head for session, head in shown}

    def fill_peers(*, in_alarm: bool) -> None:
        for session, head in shown:
            flows = [flow for flow in session.flows.values() if _in_alarm(flow) is in_alarm]
            told = known[session.number]
            room.fill(head["peers"], (_peer(flow, mtu.report(flow), told) for flow in flows))

    now = time.monotonic()
    fill_peers(in_alarm=True)
    for session, head in shown:
        room.fill(head["late"], (_late(row) for row in stragglers(session, now)))
        room.fill(head["waiting"], _waiting(session))
    fill_peers(in_alarm=False)
    for session, head in shown:
        rows = known[session.number].ledger[-ledger:] if ledger else []
        room.fill(head["ledger"], (_ledger_row(row) for row in reversed(rows)))
        head["ledger"].reverse()
    return whole | ({"truncated": True} if room.short else {})


def _counters(endpoint: Endpoint, paths: list[UdpPath]) -> dict[str, int]:
    elsewhere = {
        "kernel_dropped": sum(path.strangers.dropped for path in paths),
        "repeated": endpoint.inbox.repeated,
        "inbox_full": endpoint.inbox.lost,
    }
    return dict(endpoint.counters) | {what: count for what, count in elsewhere.items() if count}


def _session(session: Session, accounts: Accounts) -> dict[str, Any]:
    """The session as a whole; its lists are filled as far as there is room."""
    return {
        "rank": session.rank,
        **values(SESSION, SessionOrigin(session, accounts)),
        "late": [],
        "waiting": [],
        "broken": session.broken[1][:MAX_TEXT] if session.broken else "",
        "totals": session.outcomes.totals.report(),
        "peers": [],
        "ledger": [],
    }


def _late(row: Straggler) -> dict[str, Any]:
    return row._asdict() | {"awaiting": row.awaiting[:MAX_TEXT]}


def _waiting(session: Session) -> list[str]:
    oldest = list(session.operations.values())[:MAX_WAITING]
    return [op.awaited()[1][:MAX_TEXT] for op in oldest if not op.done]


def _in_alarm(flow: Flow) -> bool:
    """Whether the peer or a path to it is doubted: reports leave out other peers first."""
    gray = any(health.gray for health in flow.paths.health)
    return gray or flow.suspected or not all(tx.up for tx in flow.paths.tx)


def _peer(flow: Flow, mtu: list[dict[str, Any]], accounts: Accounts) -> dict[str, Any]:
    silent = time.monotonic() - flow.heard_at if flow.suspected else 0.0
    paths = [
        PathSource(sender, receiver, number, flow, accounts)
        for number, (sender, receiver) in enumerate(
            zip(flow.paths.tx, flow.paths.rx.paths, strict=True)
        )
    ]
    return {
        "rank": flow.rank,
        "host": flow.host,
        **values(PEER, PeerSource(flow, accounts, silent)),
        "paths": [
            _path(path) | (mtu[path.number] if path.number < len(mtu) else {}) for path in paths
        ],
    }


def _path(path: PathSource) -> dict[str, Any]:
    names = list(traffic_classes())
    classes = {
        names[number]: values(CLASS, space)
        for number, space in sorted(path.sender.spaces.items())
        if number < len(names) and space.sent
    }
    return values(PATH, path) | {"classes": classes}


def _ledger_row(row: LedgerRow) -> dict[str, Any]:
    return {
        "operation": row.operation,
        "name": row.name,
        "sender": row.sender,
        "owner": row.owner,
        "transfer": row.transfer,
        "segments": row.segments,
        "out_of": row.out_of,
        "paths": {str(path): count for path, count in row.paths.items()},
    }
