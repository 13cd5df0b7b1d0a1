"""What a recording is of: jobs, hosts, build and configuration, for the top of a report."""

from typing import Any, Final

from dlcpd.daemon.config.tables import Config
from dlcpd.inspection.report import titled
from dlcpd.inspection.settings import Difference, not_in_force

RUN: Final = "run"  # its key in otherData of a recording
MOST_NAMED: Final = 8  # hosts or jobs in a sentence
# Their defaults are values of the daemon's host, and a report may be read on another one.
OF_THE_HOST: Final = frozenset(
    {"daemon.host", "daemon.control_address", "security.identity", "security.authorised"}
)
Row = dict[str, Any]


def run_identity(*reports: Row) -> Row:
    """Of one daemon's reports, the last of which counts for all but sessions.

    Raises: KeyError, TypeError for anything but a report.
    """
    newest = reports[-1]
    sessions = [session for report in reports for session in report["sessions"]]
    hosts = {peer["host"] for session in sessions for peer in session["peers"]}
    config = newest.get("config")  # a daemon of an earlier version does not tell it
    other = not_in_force(config, Config()) if config else []
    return {
        "jobs": sorted({titled(session) for session in sessions}),
        "ranks": max((session["world_size"] for session in sessions), default=0),
        "recorded on": newest["host"],
        "hosts": sorted(hosts | {newest["host"]}),
        "dlcpd": newest["version"],
        "commit": newest.get("commit", ""),
        "settings": {one.key: one.running for one in other if not _of_the_host(one)},
    }


def _of_the_host(one: Difference) -> bool:
    return one.key in OF_THE_HOST or (one.key == "network.paths" and len(one.running) == 1)


def sentence(run: Row) -> str:
    """For people. Raises: KeyError, TypeError for anything but a run's identity."""
    settings = len(run["settings"])
    return (
        f"Job {named(run['jobs']) or 'unknown'}, {run['ranks']} ranks, on {named(run['hosts'])}; "
        f"recorded on {run['recorded on']} by dlcpd {run['dlcpd']}, commit "
        f"{run['commit'] or 'unknown'}, with "
        f"{settings or 'no'} {'setting' if settings == 1 else 'settings'} other than the defaults."
    )


def named(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
