"""What an engine knows of itself, as plain values for `dlcpctl status`."""

import time
from typing import Any, Final

import msgpack

from dlcpd.collectives.accounts import Accounts, LedgerRow
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.paths.path import PathReceiver, PathSender
from dlcpd.core.paths.space import SpaceSender
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.session.stragglers import stragglers
from dlcpd.io.commands import MAX_COMMAND
from dlcpd.io.discovery.mtu import MtuDiscovery
from dlcpd.io.udp.udp_path import UdpPath

MAX_WAITING: Final = 3  # oldest open operations of a session; the others mostly wait alike
MAX_REPORT: Final = MAX_COMMAND - 1024  # bytes; the frame around it is small


def report(
    endpoint: Endpoint,
    paths: list[UdpPath],
    mtu: MtuDiscovery,
    accounts: dict[int, Accounts],
    ledger: int,
) -> dict[str, Any]:
    """Counters, paths, sessions and the newest `ledger` rows of each session."""
    return {
        "counters": _counters(endpoint, paths),
        "effort": dict(endpoint.effort),
        "paths": [
            {
                "address": list(path.address),
                "gso": path.gso,
                "gro": path.gro,
                "receive_buffer": path.receive_buffer,
            }
            for path in paths
        ],
        "sessions": {
            str(number): _session(session, mtu, accounts.get(number, Accounts()), ledger)
            for number, session in endpoint.sessions.items()
        },
    }


def _counters(endpoint: Endpoint, paths: list[UdpPath]) -> dict[str, int]:
    elsewhere = {
        "kernel_dropped": sum(path.kernel_dropped for path in paths),
        "repeated": endpoint.inbox.repeated,
        "inbox_full": endpoint.inbox.lost,
    }
    return dict(endpoint.counters) | {what: count for what, count in elsewhere.items() if count}


def bounded_report(
    endpoint: Endpoint,
    paths: list[UdpPath],
    mtu: MtuDiscovery,
    accounts: dict[int, Accounts],
    ledger: int,
) -> dict[str, Any]:
    """A report that fits one frame: fewer ledger rows, then no peers, rather than none at all."""
    while True:
        whole = report(endpoint, paths, mtu, accounts, ledger)
        if len(msgpack.packb(whole)) <= MAX_REPORT:
            return whole
        if not ledger:
            break
        ledger //= 2
    for session in whole["sessions"].values():
        session["peers"] = []
    return whole | {"truncated": True}


def _session(
    session: Session, mtu: MtuDiscovery, accounts: Accounts, ledger: int
) -> dict[str, Any]:
    oldest = list(session.operations.values())[:MAX_WAITING]
    return {
        "rank": session.rank,
        "submitted": session.begun,
        "open": len(session.operations),
        "late": [row._asdict() for row in stragglers(session, time.monotonic())],
        "waiting": [op.waiting_for() for op in oldest if not op.done],
        "residual_bytes": accounts.residuals.size,
        "held_bytes": accounts.holdings.held,
        "residual_evicted": accounts.residuals.evicted,
        "broken": session.broken[1] if session.broken else "",
        "totals": session.outcomes.totals.report(),
        "peers": [_peer(flow, mtu.report(flow), accounts) for flow in session.flows.values()],
        "ledger": [_ledger_row(row) for row in accounts.ledger[-ledger:]] if ledger else [],
    }


def _peer(flow: Flow, mtu: list[dict[str, Any]], accounts: Accounts) -> dict[str, Any]:
    return {
        "rank": flow.rank,
        "host": flow.host,
        "window": flow.window,
        "segment_size": flow.segment_size,
        "routes": flow.paths.distinct,
        "queued": flow.outgoing.queued,
        "went_without": accounts.lost[flow.rank],
        "silent": time.monotonic() - flow.heard_at if flow.suspected else 0,  # seconds
        "paths": [
            _path(tx, rx)
            | (mtu[number] if number < len(mtu) else {})
            | {
                "hops": flow.paths.routes.hops(number),
                "gray": flow.paths.health[number].gray,
                "given_up": accounts.given_up[flow.rank, number],
            }
            for number, (tx, rx) in enumerate(zip(flow.paths.tx, flow.paths.rx, strict=True))
        ],
    }


def _path(tx: PathSender, rx: PathReceiver) -> dict[str, Any]:
    names = list(traffic_classes())
    return {
        "up": tx.up,
        "sent": tx.sent,
        "lost": tx.lost,
        "in_flight": tx.in_flight,
        "rtt": tx.smoothed_rtt,
        "congestion_window": sum(int(s.congestion.window) for s in tx.spaces.values()),
        "queue_delay": max((s.congestion.queue_delay for s in tx.spaces.values()), default=0.0),
        "received": sum(space.received for space in rx.spaces.values()),
        "missing": sum(space.largest - space.received for space in rx.spaces.values()),
        "classes": {
            names[number]: _space(space)
            for number, space in sorted(tx.spaces.items())
            if number < len(names) and space.sent
        },
    }


def _space(space: SpaceSender) -> dict[str, Any]:
    return {
        "sent": space.sent,
        "lost": space.lost,
        "lost_at_most": space.lost_at_most,
        "marked": space.marked,
        "again": space.again,
        "bytes": space.bytes,
        "rtt": space.rtt.smoothed,
        "window": int(space.congestion.window),
        "rate": int(space.congestion.rate),
        "queue_delay": space.congestion.queue_delay,
    }


def _ledger_row(row: LedgerRow) -> dict[str, Any]:
    return {
        "operation": row.operation, "name": row.name, "sender": row.sender, "owner": row.owner,
        "transfer": row.transfer, "segments": row.segments, "out_of": row.out_of,
        "paths": {str(path): count for path, count in row.paths.items()},
    }  # fmt: skip
