"""What a ledger hears of an operation: enough to compute its result again, given the inputs."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.residual import Hole


class Missing(NamedTuple):
    """Segments that one transfer went without, as one of its ends saw it. Ranks of the session."""

    peer: int  # the other end
    transfer: int  # counts those between the two in this direction, in this operation
    out_of: int  # segments of the transfer
    segment_size: int  # bytes
    segments: Segments
    paths: dict[int, int]  # path -> segments; known to the sender only


class Losses(NamedTuple):
    """Of one operation on one rank."""

    waived: Sequence[Missing] = ()  # of what it sent; kept as residual in this order
    lost: Sequence[Missing] = ()  # of what it received


class Recording(Protocol):
    """Of one operation. `begin`, then `contribute`, then one of the others, each once."""

    def begin(self, tensor: Bytes) -> None:
        """This rank contributes `tensor`, and nothing is brought back yet."""

    def contribute(self, tensor: Bytes, reapplied: Sequence[Hole]) -> None:
        """`reapplied` has been added to it, in this order: this goes out."""

    def end(self, number: int, output: Bytes, losses: Losses) -> None:
        """The result stands. `number` is the operation's in its group."""

    def fail(self, number: int) -> None:
        """There is none, and what was brought back waits again. `number` 0: it never began."""
