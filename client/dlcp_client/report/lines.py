"""The log lines of rank 0 at the beginning and end of a training, at level INFO."""

import logging
from typing import Any, Final

from dlcp_client.report.text import amounts, losses, said, waiting
from dlcp_client.report.totals import Totals
from dlcp_client.session import Session
from dlcpd.contract.policy import LossPolicy

log: Final = logging.getLogger("dlcp_client")


def start(session: Session, policy: LossPolicy, how: str) -> None:
    """Log the configuration. `how`: the call that registered, in a few words."""
    if session.rank or not log.isEnabledFor(logging.INFO):
        return
    report = session.status()
    features = report.get("features", {})
    engines, path = features.get("engines", "?"), features.get("data_path", "?")
    log.info(
        "%s: %s; rank 0 of %d through %s, %s engine(s), data path %s",
        how,
        said(policy),
        session.world_size,
        daemon(session, report),
        engines,
        path,
    )


def daemon(session: Session, report: dict[str, Any]) -> str:
    """The daemon in use, and the number of ranks of the job that it serves."""
    if session.origin is not None and session.origin.socket:
        whose = f"this host's dlcpd at {session.origin.socket}"
    else:
        whose = "a private dlcpd"
        if session.origin is not None and session.origin.private_socket:
            whose += f" (dlcpctl status --socket {session.origin.private_socket})"
    ranks = sum(one["job"] == session.job for one in report.get("sessions", []))
    return f"{whose} for {ranks} rank(s) of this host" if ranks else whose


def end(session: Session, totals: Totals, policy: LossPolicy, how: str, *, waits: bool) -> None:
    """Log the totals."""
    if session.rank or not log.isEnabledFor(logging.INFO):
        return
    parts = [amounts(totals)]
    if policy.mode == "bounded" or totals.by_name:
        parts.append(losses(totals, policy))
    if totals.exchange is not None:
        parts.append(str(totals.exchange))
    if waits:
        parts.append(waiting(totals))
    # Do not look for losses: a peer that has left since the last operation is no error.
    if (failure := session.failure(look=False)) is not None:
        parts.append(f"ended by: {failure}")
    log.info("%s, rank 0 of %d: %s", how, session.world_size, "; ".join(parts))
