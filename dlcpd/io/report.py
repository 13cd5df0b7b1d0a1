"""The state of an engine, as plain values for `dlcpctl status`."""

import time
from collections.abc import Iterator
from typing import Any, Final

from msgspec.msgpack import Encoder

from dlcpd.collectives.loss.accounts import Accounts, LedgerRow
from dlcpd.contract.forms import plain
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.session.stragglers import Straggler, stragglers
from dlcpd.core.session.totals import Totals
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
MAX_TEXT: Final = 512  # characters of a text, which may list every rank
PART: Final = 32 << 10  # bytes, and one row more: a few milliseconds of the engine
# Bytes of rows: 8 ranks of a job of 256 with 16 paths take 8 MB, and 4 MB more for each class.
# Heads of sessions, which have the alarms, always come.
MAX_REPORT: Final = 32 << 20
_encode: Final = Encoder(enc_hook=plain).encode
Part = dict[str, Any]
Row = tuple[str, str, Any]  # number of a session, name of a list of it, row


def report_parts(
    endpoint: Endpoint,
    paths: list[UdpPath],
    mtu: MtuDiscovery,
    accounts: dict[int, Accounts],
    ledger: int,
) -> Iterator[Part]:
    """Counters, paths, sessions and the newest `ledger` rows of each session, in parts.

    Each part is a map that `daemon.engine_reports.add_part` adds to those before: first the engine,
    then the heads of sessions with their alarms, the peers in alarm, the other peers, and ledger
    rows. The engine may go on between two parts. If rows were left out, the last part says so
    (`truncated`).
    """
    yield {
        "counters": _counters(endpoint, paths),
        "effort": dict(endpoint.effort),
        "totals": _totals(endpoint),
        "links": _links(endpoint),
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
    sessions = list(endpoint.sessions.values())
    known = {session.number: accounts.get(session.number) or Accounts() for session in sessions}
    for session in sessions:
        yield {"sessions": {str(session.number): _session(session, known[session.number])}}
    left, part, size = MAX_REPORT, dict[str, Any](), 0
    for number, name, row in _rows(endpoint, sessions, mtu, known, ledger):
        took = len(_encode(row))
        if took > left:
            yield {"sessions": part, "truncated": True}
            return
        part.setdefault(number, {}).setdefault(name, []).append(row)
        left, size = left - took, size + took
        if size >= PART:
            yield {"sessions": part}
            part, size = {}, 0
    yield {"sessions": part}


def _rows(
    endpoint: Endpoint,
    sessions: list[Session],
    mtu: MtuDiscovery,
    known: dict[int, Accounts],
    ledger: int,
) -> Iterator[Row]:
    """Rows of the lists of sessions, peers in alarm first. A session that has ended has none."""
    for in_alarm in (True, False):
        for session in sessions:
            for flow in list(session.flows.values()):
                if session.number in endpoint.sessions and _in_alarm(flow) is in_alarm:
                    row = _peer(flow, mtu.report(flow), known[session.number])
                    yield str(session.number), "peers", row
    for session in sessions:
        for entry in list(known[session.number].ledger)[-ledger:] if ledger else []:
            yield str(session.number), "ledger", _ledger_row(entry)


def _counters(endpoint: Endpoint, paths: list[UdpPath]) -> dict[str, int]:
    elsewhere = {
        "kernel_dropped": sum(path.strangers.dropped for path in paths),
        "repeated": endpoint.inbox.repeated,
        "inbox_full": endpoint.inbox.lost,
    }
    return dict(endpoint.counters) | {what: count for what, count in elsewhere.items() if count}


def _links(endpoint: Endpoint) -> dict[str, Any]:
    """Both directions of this host's link, as `LinkReading`s."""
    now = time.monotonic()
    ways = {"out": endpoint.link.out, "in": endpoint.link.into}
    return {way: link.reading(now)._asdict() for way, link in ways.items()}


def _totals(endpoint: Endpoint) -> dict[str, Any]:
    """Of all sessions since the start, those that have ended included."""
    whole = Totals()
    for totals in (endpoint.ended, *(s.outcomes.totals for s in endpoint.sessions.values())):
        whole.add(totals)
    return whole.report()


def _session(session: Session, accounts: Accounts) -> dict[str, Any]:
    """The session as a whole; the rows of its peers and of its ledger follow."""
    return {
        "rank": session.rank,
        **values(SESSION, SessionOrigin(session, accounts)),
        "alarms": _alarms(session),
        "late": [_late(row) for row in stragglers(session, time.monotonic())],
        "waiting": _waiting(session),
        "broken": session.broken[1][:MAX_TEXT] if session.broken else "",
        "totals": session.outcomes.totals.report(),
        "peers": [],
        "ledger": [],
    }


def _alarms(session: Session) -> dict[str, int]:
    """Numbers of peers and paths in alarm, whatever rows of them follow."""
    flows = session.flows.values()
    return {
        "silent_peers": sum(flow.suspected for flow in flows),
        "paths_down": sum(not sender.up for flow in flows for sender in flow.paths.tx),
        "paths_gray": sum(health.gray for flow in flows for health in flow.paths.health),
    }


def _late(row: Straggler) -> dict[str, Any]:
    return row._asdict() | {"awaiting": row.awaiting[:MAX_TEXT]}


def _waiting(session: Session) -> list[str]:
    oldest = list(session.operations.values())[:MAX_WAITING]
    return [op.awaited()[1][:MAX_TEXT] for op in oldest if not op.done]


def _in_alarm(flow: Flow) -> bool:
    """Whether the peer or a path to it is doubted: reports have these peers first."""
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
