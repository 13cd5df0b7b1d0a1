"""The digest of those parts of one result that are equal on all ranks."""

from dataclasses import dataclass

from dlcpd.collectives.buffers import Buffers
from dlcpd.collectives.order import Order
from dlcpd.core.session.digests import Digest, Digester, DigestPiece
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.schedules.model import Compute, Decode, Encode, Receive, Reduce, replicated


@dataclass(slots=True, eq=False)
class ReplicaDigest:
    """Digest of every `order.digest_every`-th piece of the result, as this rank holds it."""

    id: OperationId
    order: Order
    rank: int  # this one, in the session
    digester: Digester  # of the session
    buffers: Buffers
    digest: Digest | None = None  # None: no piece was hashed

    def add(self, step: Receive | Reduce | Encode | Decode | Compute) -> None:
        """`step`, whose `piece` has a number, is done: hash the piece if its turn has come."""
        order, number = self.order, step.piece
        if (number + self.id[2]) % order.digest_every:
            return
        members = order.group.members
        source = members[step.peer] if isinstance(step, Receive | Decode) else self.rank
        span = replicated(step)
        value = self.digester.piece(self.buffers.bytes_of(span), number)
        piece = DigestPiece(number, span.start, span.start + span.size, source)
        self.digest = (self.digest or Digest()).plus(value, piece)

    def result(self) -> Digest:
        """The digest, with the operation's name."""
        label = f"{self.order.label(self.id)} ({self.order.terms})"
        return (self.digest or Digest())._replace(label=label)
