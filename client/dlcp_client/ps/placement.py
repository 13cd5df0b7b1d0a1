"""Where the shards of an embedded server are, and how workers hear of their end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from dlcp_client.job.neighbours import Neighbours
from dlcp_client.ps.directory import MAX_SHARDS, Directory
from dlcpd.contract.errors import BadMessage, ServerLost


@dataclass(frozen=True, slots=True)
class Placement:
    """Where shards are: equal on all ranks."""

    name: str  # of the server
    homes: tuple[int, ...]  # by shard: the rank that starts it
    hosts: tuple[str, ...]  # by shard: the name of that rank's host
    local: tuple[int, ...]  # the ranks that share this one's daemon

    @classmethod
    def of(cls, rank: int, said: Sequence[dict[str, Any]]) -> Self:
        """From what every rank said of itself. A shard beside each daemon, but no more than rank
        0's model has tensors that are not empty: none may have nothing. Raises: BadMessage."""
        near = [Neighbours.among(each, said) for each in range(len(said))]
        try:
            most = min(int(said[0]["parts"]), MAX_SHARDS)
            homes = tuple(sorted({one.home for one in near})[:most])
            hosts = tuple(str(said[home]["host"]) for home in homes)
            return cls(str(said[0]["name"]), homes, hosts, near[rank].ranks)
        except (KeyError, TypeError, ValueError) as exc:
            raise BadMessage(
                f"a rank said nothing of its {exc}, which a parameter server needs: is its dlcpd "
                f"older?"
            ) from exc

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self.homes)

    def sessions(self, world: int) -> int:
        """That the daemon of this rank serves at most: of its workers, and of its shard."""
        return len(self.local) * len(self.homes) + world

    def where(self, shard: int) -> str:
        """In words."""
        return (
            f"shard {shard} of the embedded server, beside the daemon of rank {self.homes[shard]} "
            f"on {self.hosts[shard]},"
        )


NOWHERE: Final = Placement("", (), (), ())


@dataclass(frozen=True, slots=True)
class EmbeddedDirectory(Directory):
    """A Directory whose shards have no successors."""

    placement: Placement = NOWHERE

    def bury(self, shard: int, how: str) -> None:
        """Tell all workers how the process of a shard ended."""
        self.sealed.write(f"{shard}/ended", how)

    def check_lives(self, shard: int) -> None:
        """Raises: ServerLost."""
        how = self.sealed.read(f"{shard}/ended", self._what(f"end of shard {shard}"))
        if how is not None:
            raise ServerLost(self._lost(shard, f"has ended ({how})"))

    def _unanswered(self, shard: int, waited: float, _newest: object) -> str:
        return self._lost(
            shard, f"did not answer within {waited:.1f} s: it, its daemon or its host has ended"
        )

    def _lost(self, shard: int, how: str) -> str:
        return (
            f"{self.placement.where(shard)} {how}; nothing takes its place: start the job again "
            f"from its last checkpoint, or name a server that has a standby (dlcpd server)"
        )
