"""A job over all its hosts, as one document for the page: reports of daemons and of other pages."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, Final, Protocol

from dlcpd.contract.errors import DaemonUnavailable, DlcpError
from dlcpd.contract.job_name import given
from dlcpd.inspection.report import alarms

MAX_HOSTS: Final = 64
AT_ONCE: Final = 16  # hosts that are asked in parallel
MAX_PATHS: Final = 20_000  # rows of peers and paths in a document: some 10 MB for a browser
FRESH: Final = 1.0  # seconds for which further requests get the same document
Document = dict[str, Any]
Row = dict[str, Any]


class HostPage(Protocol):
    """A daemon, or the page of one. `name`: the path or URL by which the user gave it."""

    name: str

    def status(self) -> Document:
        """The document of its page. Raises: DlcpError."""


class Job:
    """The job `name`, of which `sources` show the ranks; a name without the part that is of the
    launch means all launches. Thread-safe."""

    def __init__(self, name: str, sources: Sequence[HostPage]) -> None:
        self.name, self._sources = name, sources
        self._asking = threading.Lock()
        self._newest: Document = {}
        self._at = float("-inf")

    def status(self) -> Document:
        """Sessions of the job on all hosts, and alarms of each.

        Raises: DaemonUnavailable if no host answers.
        """
        with self._asking:
            if time.monotonic() - self._at > FRESH:
                self._newest = self._asked()
                self._at = time.monotonic()
            return self._newest

    def trace(self, steps: int) -> Document:
        """Raises: DaemonUnavailable: a recording is of one host."""
        raise DaemonUnavailable(f"{steps} steps are recorded on the page of one host, not of a job")

    def _asked(self) -> Document:
        parts, missing = self._answers()
        if not parts:
            raise DaemonUnavailable(missing[0])
        sessions = [session for part in parts for session in part["sessions"]]
        engines = {key: row for part in parts for key, row in part["engines"].items()}
        lines = [f"HOST: {why}" for why in missing]
        lines += [line for part in parts for line in part["alarms"]]
        return {
            "report": parts[0]["about"] | {"sessions": sessions, "engine": {"sessions": engines}},
            "alarms": [*lines, *_not_shown(parts)],
            "socket": parts[0]["socket"],
            "job": {"name": self.name, "hosts": len(parts), "asked": len(self._sources)},
        }

    def _answers(self) -> tuple[list[Row], list[str]]:
        """Parts of the hosts that answer, and why others have none."""
        parts, missing, left = list[Row](), list[str](), MAX_PATHS
        with ThreadPoolExecutor(min(AT_ONCE, len(self._sources))) as pool:
            for start in range(0, len(self._sources), AT_ONCE):
                for part in pool.map(self._part, self._sources[start : start + AT_ONCE]):
                    if isinstance(part, str):
                        missing.append(part)
                        continue
                    parts.append(part)
                    left -= part["paths"]
                    if left < 0:
                        part["engines"] = {
                            key: row | {"peers": []} for key, row in part["engines"].items()
                        }
                        part["alarms"].append(
                            f"SHORT: {part['host']}: its paths are left out, as a page shows at "
                            f"most {MAX_PATHS}"
                        )
        return parts, missing

    def _part(self, source: HostPage) -> Row | str:
        """This job's part of a document; or why there is none."""
        try:
            return self._read(source.status())
        except DlcpError as exc:
            return str(exc)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            return f"{source.name}: its report is none of a page ({type(exc).__name__}: {exc})"

    def _read(self, document: Document) -> Row:
        """Sessions have keys that are unique over hosts and starts of daemons."""
        report = document["report"]
        host, known = str(report["host"]), report["engine"].get("sessions", {})
        ours = [row for row in report["sessions"] if self.name in (row["job"], given(row["job"]))]
        keys = {str(row["session"]): f"{host} {report['pid']} {row['session']}" for row in ours}
        engines = {keys[number]: row for number, row in known.items() if number in keys}
        about = {key: report[key] for key in ("version", "uptime", "health", "features")}
        return {
            "about": about | {"host": self.name, "pid": 0},
            "sessions": [row | {"session": keys[str(row["session"])], "on": host} for row in ours],
            "engines": engines,
            "paths": sum(
                len(peer["paths"]) for row in engines.values() for peer in row.get("peers", [])
            ),
            "host": host,
            "alarms": [_on(host, line) for line in alarms(report | {"sessions": ours})],
            "shown": {(row["job"], int(row["rank"])) for row in ours},
            "peers": {
                (row["job"], str(peer["host"]), int(peer["rank"]))
                for row in ours
                for peer in row["peers"]
            },
            "socket": document["socket"],
        }


def _on(host: str, line: str) -> str:
    kind, _, text = line.partition(": ")
    return f"{kind}: {host}: {text}"


def _not_shown(parts: Sequence[Row]) -> Iterator[str]:
    """Ranks of which no source has the report."""
    shown = {rank for part in parts for rank in part["shown"]}
    peers = sorted({peer for part in parts for peer in part["peers"]})
    for (job, host), rows in groupby(peers, lambda peer: peer[:2]):
        absent = [str(rank) for *_, rank in rows if (job, rank) not in shown]
        if absent:
            yield (
                f"NOT SHOWN: {job}: rank {', '.join(absent)} on {host}: add --of with the page of "
                "that host"
            )
