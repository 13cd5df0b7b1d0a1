"""An embedded server: one shard per machine, for this job alone.

The ranks meet in the job's store. The first rank of each machine starts the private daemon that its
ranks share, or uses the host's, and starts a shard in another process. Shards end when the last
worker has left; a shard that is killed is not replaced.
"""

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from dlcp_client.ipc.door import Door
from dlcp_client.job.neighbours import Neighbours
from dlcp_client.job.rendezvous import (
    Meeting,
    Member,
    fresh,
    launch_of,
    raise_refusal,
    refusal,
    together,
)
from dlcp_client.ps.beside import Beside, Given
from dlcp_client.ps.calls import new_name
from dlcp_client.ps.placement import EmbeddedDirectory, Placement
from dlcpd.contract.errors import DlcpError

SUBJECT: Final = "parameter server"
TAKEOVER: Final = 10.0  # seconds for a shard to answer a worker whose session with it broke


class Intent:
    """This rank's part in a meeting of all ranks about an embedded server."""

    def __init__(self, member: Member) -> None:
        self._member, self._meeting = member, Meeting(member, SUBJECT)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Publish an error of the block to all ranks, so that none waits for this one.

        Raises: the error of the block.
        """
        try:
            yield
        except DlcpError as exc:
            self._meeting.publish(refusal(exc))
            raise

    def open(self, parts: int, given: Given, deadline: float) -> tuple[EmbeddedDirectory, Beside]:
        """Start the shards for a model of `parts` non-empty tensors. All ranks call it.

        Raises: the error that kept this rank, or another, from taking part; nothing is left open
        then.
        """
        member = self._member
        with ExitStack() as door_stack, ExitStack() as undo:
            door = None if given.socket else door_stack.enter_context(Door())
            self._meeting.publish(
                {
                    "machine": given.machine(),
                    "door": door.name if door else "",
                    "running": False,
                    "host": socket.gethostname(),
                    "parts": parts,
                    "name": f"embedded-{new_name()}",
                    **fresh(),
                }
            )
            said = self._meeting.gather(deadline)
            raise_refusal(said)
            member = replace(member, launch=launch_of(said))
            placement = Placement.of(member.rank, said)
            directory = EmbeddedDirectory(member.store, placement.name, member.secret, placement)
            with together(member, f"{SUBJECT} open", deadline):
                near = Neighbours.among(member.rank, said)
                sessions = placement.sessions(member.world_size)
                home = Beside(given, near, door, sessions, deadline)
                undo.callback(home.close)
                if member.rank in placement.homes:
                    shard = placement.homes.index(member.rank)
                    home.start_shard(directory, shard, member.world_size, given.snapshots)
            undo.pop_all()
        return directory, home

    def together(self, deadline: float) -> AbstractContextManager[None]:
        """Make the block succeed on all ranks, or fail on all."""
        return together(self._member, f"{SUBJECT} joined", deadline)
