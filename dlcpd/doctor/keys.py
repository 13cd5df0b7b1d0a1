"""Check of the authorised hosts: from the running daemon, or from files as a daemon reads them."""

import os
from dataclasses import dataclass
from typing import Any

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.tables import SecurityTable
from dlcpd.daemon.peers.trust import Trust
from dlcpd.daemon.sessions.proof import HOW_TO_PROVE, UNPROVED
from dlcpd.doctor.rows import Row, fail, good, warn


@dataclass(frozen=True, slots=True)
class PeerKeys:
    """`folder` of the authorised hosts, "" = any key; `hosts`: how many it names."""

    folder: str = ""
    hosts: int = 0
    problem: str = ""  # the first
    hidden: str = ""  # the key file of another user's daemon


def look_at_keys(table: SecurityTable, report: dict[str, Any] | None) -> PeerKeys:
    """`table` is resolved; `report` is that of a running daemon, and has precedence."""
    if report is not None:
        known = report["security"]
        return PeerKeys(known["authorised"], known["hosts"], next(iter(known["problems"]), ""))
    if os.path.exists(table.identity) and not _of_this_user(table.identity):
        return PeerKeys(table.authorised, hidden=table.identity)
    try:
        trust = Trust.configured(table)
    except BadConfig as exc:
        return PeerKeys(table.authorised, problem=str(exc))
    return PeerKeys(table.authorised, trust.authorised.hosts)


def _of_this_user(file: str) -> bool:
    """Readable is not enough: root can read the file of another user's daemon."""
    return os.access(file, os.R_OK) and os.stat(file).st_uid in (0, os.geteuid())


def judge_keys(found: PeerKeys, *, loopback: bool) -> Row:
    """`loopback`: no other host reaches this daemon's control port."""
    check = "keys"
    if found.problem:
        return fail(
            check,
            found.problem,
            "`dlcpctl keys list` names the files; make or authorise them again (docs/security.md)",
        )
    if found.hidden:
        return good(
            check, f"only the user of the daemon may read {found.hidden}; run doctor as that user"
        )
    if found.folder:
        return good(check, f"{found.hosts} hosts authorised by {found.folder}")
    if loopback:
        return good(check, "any key, on loopback only")
    return warn(
        check, f"any key that a job names: where it has no secret, {UNPROVED}", HOW_TO_PROVE
    )
