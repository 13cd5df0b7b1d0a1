"""The versions of this build: of the release, and of what it exchanges with clients and peers."""

from collections.abc import Iterable
from typing import Any

from dlcpd.build import COMMIT, VERSION
from dlcpd.contract.messages import SERVED
from dlcpd.daemon.peers.peer_messages import SPOKEN


def versions() -> dict[str, Any]:
    """For reports. `messages`, `peers`: versions that this build speaks, the newest first."""
    return {"version": VERSION, "commit": COMMIT, "messages": SERVED, "peers": SPOKEN}


def text(program: str) -> str:
    """For people: a line with the version, and one with the others."""
    return (
        f"{program} {VERSION}\n"
        f"commit {COMMIT or 'unknown'}; messages {named(SERVED)}; peers {named(SPOKEN)}"
    )


def named(numbers: Iterable[int]) -> str:
    """Versions in words."""
    return " and ".join(map(str, numbers))
