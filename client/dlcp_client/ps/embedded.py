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

from dlcp_client.ipc.private_socket import PrivateSocket
from dlcp_client.job.host_peers import HostPeers
from dlcp_client.job.rendezvous import (
    Meeting,
    Member,
    fresh,
    launch_of,
    raise_refusal,
    refusal,
    together,
)
from dlcp_client.ps.calls import new_name
from dlcp_client.ps.placement import EmbeddedDirectory, Placement
from dlcp_client.ps.shared_host_daemon import EmbeddedServerOptions, SharedHostDaemon
from dlcpd.contract.errors import DlcpError

SUBJECT: Final = "parameter server"
TAKEOVER: Final = 10.0  # seconds for a shard to answer a worker whose session with it broke


class ServerMeeting:
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

    def open(
        self, parts: int, given: EmbeddedServerOptions, deadline: float
    ) -> tuple[EmbeddedDirectory, SharedHostDaemon]:
        """Start the shards for a model of `parts` non-empty tensors. All ranks call it.

        Raises: the error that kept this rank, or another, from taking part; nothing is left open
        then.
        """
        member = self._member
        with ExitStack() as socket_stack, ExitStack() as undo:
            private_socket = None if given.socket else socket_stack.enter_context(PrivateSocket())
            self._meeting.publish(
                {
                    "machine": given.machine(),
                    "socket_path": private_socket.name if private_socket else "",
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
                peers = HostPeers.among(member.rank, said)
                sessions = placement.sessions(member.world_size)
                host_daemon = SharedHostDaemon(given, peers, private_socket, sessions, deadline)
                undo.callback(host_daemon.close)
                if member.rank in placement.owners:
                    shard = placement.owners.index(member.rank)
                    host_daemon.start_shard(directory, shard, member.world_size, given.snapshots)
            undo.pop_all()
        return directory, host_daemon

    def together(self, deadline: float) -> AbstractContextManager[None]:
        """Make the block succeed on all ranks, or fail on all."""
        return together(self._member, f"{SUBJECT} joined", deadline)
