"""The listening socket by which other ranks of this machine reach a private daemon."""

import os
from collections.abc import Iterator
from typing import Self

from dlcp_client.environment import Environment
from dlcpd.contract.errors import DaemonUnavailable
from dlcpd.ipc.socket_folder import SocketFolder, sweep


class PrivateSocket:
    """A listening socket in a folder that only this user can enter. Leaving the block removes it,
    unless a daemon owns it by then.

    Raises: DaemonUnavailable if no folder can be made that is safe from other users.
    """

    def __init__(self) -> None:
        self.place = _place()
        self.name = self.place.address
        self._given = False
        try:
            self.socket = self.place.listen()
        except OSError as exc:
            self.place.remove()
            raise DaemonUnavailable(
                f"a private daemon cannot listen at {self.name}: {exc.strerror}"
            ) from exc

    def give(self) -> None:
        """A daemon owns the socket now, and removes it."""
        self._given = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        if self._given:
            self.place.let_go()
        else:
            self.place.remove()


def _place() -> SocketFolder:
    """A new socket folder; first removes those that killed processes left.

    Raises: DaemonUnavailable.
    """
    problems, roots = [], list(dict.fromkeys(_roots()))
    sweep(roots)
    for root in roots:
        try:
            return SocketFolder.make(root)
        except OSError as exc:
            problems.append(f"{root}: {exc.strerror or exc}")
    raise DaemonUnavailable(
        f"no folder is safe for the socket of a private daemon: {'; '.join(problems)}; set "
        f"XDG_RUNTIME_DIR or TMPDIR to a folder in which only user id {os.geteuid()} can write"
    )


def _roots() -> Iterator[str]:
    """Candidate folders, best first: the user's runtime folder, then temporary folders."""
    environment = Environment.read()
    named = environment.runtime, f"/run/user/{os.geteuid()}", environment.temporary
    yield from filter(None, named)
    yield from ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # each is checked
