"""`dlcpctl stop`: ends a daemon as SIGTERM does, and shows the work that it waits for."""

import argparse
import os
import select
import signal
import time
from pathlib import Path
from typing import Any, Final

from dlcpd.cli.output import Output
from dlcpd.contract.errors import DaemonUnavailable, DlcpError, NotPermitted
from dlcpd.daemon.config.tables import DaemonTable
from dlcpd.inspection.report import query, titled

LOOK: Final = 0.5  # seconds between polls of the open work


def stop(options: argparse.Namespace, output: Output) -> int:
    """Exit code 1 if the daemon has not ended within `--wait` seconds. A private daemon is refused:
    it ends with its trainers.

    Raises: DaemonUnavailable, NotPermitted.
    """
    socket = options.socket or DaemonTable().socket
    report = query(socket, 0)
    pid = _checked(report)
    process = _opened(pid)
    try:
        output.line(f"{report['host']}: dlcpd is asked to end; open: {open_work(report)}")
        _signal(process, pid)
        ended = _watch(process, socket, options.wait, output)
    finally:
        os.close(process)
    said = "has ended" if ended else f"has not ended within {options.wait} s"
    output.line(f"{report['host']}: dlcpd {said}")
    output.document({"pid": pid, "ended": ended})
    return 0 if ended else 1


def _checked(report: dict[str, Any]) -> int:
    """The daemon's process id, if it names a dlcpd here: across containers it does not.

    Raises: DaemonUnavailable, NotPermitted for a private daemon.
    """
    pid: int | None = report.get("pid")
    if pid is None:
        raise DaemonUnavailable(
            "the daemon has a version that does not report its process id: send it SIGTERM, or "
            "run systemctl stop dlcpd"
        )
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        words = ""
    if "dlcpd" not in words:
        raise DaemonUnavailable(
            f"process {pid} is not dlcpd here: the daemon runs in another container; stop it there"
        )
    if "--embedded" in words.split("\0"):
        raise NotPermitted(
            f"process {pid} is the private daemon of a training and ends with it: end its trainers"
        )
    return pid


def _opened(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError as exc:
        raise DaemonUnavailable(f"process {pid}: {exc.strerror}") from exc


def _signal(process: int, pid: int) -> None:
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except PermissionError as exc:
        raise NotPermitted(
            f"process {pid}: user id {os.getuid()} may not end it; its own user and root may"
        ) from exc
    except ProcessLookupError:
        pass  # it has ended meanwhile


def _watch(process: int, socket: str, wait: float, output: Output) -> bool:
    """Print changes of the open work for `wait` seconds; True once the process has ended."""
    until, said = time.monotonic() + wait, ""
    while (left := until - time.monotonic()) > 0:
        if select.select([process], [], [], min(LOOK, left))[0]:
            return True
        try:
            waits = open_work(query(socket, 0))
        except DlcpError:
            continue  # it is about to end, and closes its socket first
        if waits != said:
            said = waits
            output.line(f"  still open: {said}")
    return False


def open_work(report: dict[str, Any]) -> str:
    """Sessions with open operations; a daemon does not wait for sessions without any."""
    known = report["engine"].get("sessions", {})
    rows = [
        f"{titled(session)} rank {session['rank']} ({engine['open']} open)"
        for session in report["sessions"]
        if (engine := known.get(str(session["session"]), {})).get("open")
    ]
    return ", ".join(rows) or f"no operation of {len(report['sessions'])} sessions"
