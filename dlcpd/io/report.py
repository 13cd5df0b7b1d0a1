"""What an engine knows of itself, as plain values for `dlcpctl status`."""

from typing import Any, Final

import msgpack

from dlcpd.core.endpoint import Endpoint
from dlcpd.core.flow import Flow
from dlcpd.core.session import LedgerRow, Session
from dlcpd.io.commands import MAX_COMMAND
from dlcpd.io.udp import UdpPath

MAX_REPORT: Final = MAX_COMMAND - 1024  # bytes; the frame around it is small


def report(endpoint: Endpoint, paths: list[UdpPath], ledger: int) -> dict[str, Any]:
    """Counters, paths, sessions and the newest `ledger` rows of each session."""
    return {
        "counters": dict(endpoint.counters),
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
            str(number): _session(session, ledger) for number, session in endpoint.sessions.items()
        },
    }


def bounded_report(endpoint: Endpoint, paths: list[UdpPath], ledger: int) -> dict[str, Any]:
    """A report that fits one frame: fewer ledger rows, then no peers, rather than none at all."""
    while True:
        whole = report(endpoint, paths, ledger)
        if len(msgpack.packb(whole)) <= MAX_REPORT:
            return whole
        if not ledger:
            break
        ledger //= 2
    for session in whole["sessions"].values():
        session["peers"] = []
    return whole | {"truncated": True}


def _session(session: Session, ledger: int) -> dict[str, Any]:
    return {
        "rank": session.rank,
        "submitted": session.submitted,
        "open": len(session.operations),
        "residual_bytes": session.residuals.size,
        "residual_evicted": session.residuals.evicted,
        "broken": session.broken[1] if session.broken else "",
        "peers": [_peer(flow) for flow in session.flows.values()],
        "ledger": [_ledger_row(row) for row in session.ledger[-ledger:]] if ledger else [],
    }


def _peer(flow: Flow) -> dict[str, Any]:
    return {
        "rank": flow.rank,
        "host": flow.name,
        "window": flow.window,
        "paths": [
            {
                "sent": tx.sent,
                "lost": tx.lost,
                "in_flight": tx.in_flight,
                "rtt": tx.rtt.smoothed,
                "congestion_window": int(tx.congestion.window),
                "queue_delay": tx.congestion.queue_delay,
                "received": rx.received,
                "missing": rx.largest - rx.received,
            }
            for tx, rx in zip(flow.paths.tx, flow.paths.rx, strict=True)
        ],
    }


def _ledger_row(row: LedgerRow) -> dict[str, Any]:
    return {
        "operation": row.operation, "name": row.name, "sender": row.sender, "owner": row.owner,
        "chunk": row.chunk, "segments": row.segments,
        "paths": {str(path): count for path, count in row.paths.items()},
    }  # fmt: skip
