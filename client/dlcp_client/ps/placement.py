"""The hosts of an embedded server's shards, and the record of their end for workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from dlcp_client.job.host_peers import HostPeers
from dlcp_client.ps.directory import MAX_SHARDS, Directory
from dlcpd.contract.errors import BadMessage, ServerLost


@dataclass(frozen=True, slots=True)
class Placement:
    """The hosts of the shards, equal on all ranks."""

    name: str  # of the server
    owners: tuple[int, ...]  # by shard: the rank that starts it
    hosts: tuple[str, ...]  # by shard: the host name of that rank
    local: tuple[int, ...]  # the ranks that share this one's daemon

    @classmethod
    def of(cls, rank: int, said: Sequence[dict[str, Any]]) -> Self:
        """From the values that every rank published: one shard per daemon, but no more than rank
        0's model has non-empty tensors, because a shard must not be empty. Raises: BadMessage."""
        peers = [HostPeers.among(each, said) for each in range(len(said))]
        try:
            most = min(int(said[0]["parts"]), MAX_SHARDS)
            owners = tuple(sorted({one.owner for one in peers})[:most])
            hosts = tuple(str(said[host_daemon]["host"]) for host_daemon in owners)
            return cls(str(said[0]["name"]), owners, hosts, peers[rank].ranks)
        except (KeyError, TypeError, ValueError) as exc:
            raise BadMessage(
                f"a rank published no {exc}, which a parameter server needs: run the same "
                "version of dlcp_client on all ranks"
            ) from exc

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.owners)

    def sessions(self, world: int) -> int:
        """The most sessions that this rank's daemon serves: of its workers and its shard."""
        return len(self.local) * len(self.owners) + world

    def where(self, shard: int) -> str:
        """A description for errors."""
        return (
            f"shard {shard} of the embedded server, with the daemon of rank "
            f"{self.owners[shard]} on {self.hosts[shard]},"
        )


NOWHERE: Final = Placement("", (), (), ())


@dataclass(frozen=True, slots=True)
class EmbeddedDirectory(Directory):
    """A Directory whose shards are never replaced."""

    placement: Placement = NOWHERE

    def bury(self, shard: int, how: str) -> None:
        """Publish how the process of a shard ended."""
        self.signed_store.write(f"{shard}/ended", how)

    def check_lives(self, shard: int) -> None:
        """Raises: ServerLost if the shard has ended."""
        how = self.signed_store.read(f"{shard}/ended", self._what(f"end of shard {shard}"))
        if how is not None:
            raise ServerLost(self._lost(shard, f"has ended ({how})"))

    def _unanswered(self, shard: int, waited: float, _newest: object) -> str:
        return self._lost(
            shard,
            f"did not answer within {waited:.1f} s: the shard, its daemon or its host has ended",
        )

    def _lost(self, shard: int, how: str) -> str:
        return (
            f"{self.placement.where(shard)} {how}, and an embedded server does not replace it: "
            "restart the job from its last checkpoint, or use a server that has a standby "
            "(dlcpd server)"
        )
