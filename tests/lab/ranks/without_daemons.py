"""Hosts that run ranks and no daemon."""

from pathlib import Path

from dlcp_lab.ranks import processes
from dlcp_lab.ranks.hosts import Host, HostPlan, Hosts


class Sleeper:
    """Stands where a daemon would; Popen's interface, as far as launch looks at it."""

    pid = 0

    def __init__(self, status: int | None = None) -> None:
        self.status = status

    def poll(self) -> int | None:
        return self.status


def three_hosts(folder: Path) -> Hosts:
    members = []
    for name in ("a", "b", "c"):
        (folder / name).mkdir()
        (folder / name / "log").write_text("last words\n")
        child = processes.Child("dlcpd", Sleeper(), folder / name / "log")  # type: ignore[arg-type]
        members.append(Host(HostPlan(name, ("127.0.0.1",)), folder / name, child))
    return Hosts(folder, members)
