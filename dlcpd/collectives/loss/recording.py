"""Events of an operation for a ledger: with its inputs, enough to compute its result again."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.residual import Hole


class Missing(NamedTuple):
    """Missing segments of one transfer, as one of its ends saw them. Ranks of the session."""

    peer: int  # the other end
    transfer: int  # number among those between the two in this direction, in this operation
    out_of: int  # segments of the transfer
    segment_size: int  # bytes
    segments: Segments
    paths: dict[int, int]  # path -> segments; known to the sender only


class Losses(NamedTuple):
    """Losses of one operation on one rank."""

    waived: Sequence[Missing] = ()  # of its sends; kept as residual in this order
    lost: Sequence[Missing] = ()  # of its receives


class Recording(Protocol):
    """Recording of one operation: `begin`, `contribute`, then `end` or `fail`, each once."""

    def begin(self, tensor: Bytes) -> None:
        """This rank contributes `tensor`; no residual is added yet."""

    def contribute(self, tensor: Bytes, reapplied: Sequence[Hole]) -> None:
        """`reapplied` has been added to `tensor`, in this order: it is sent now."""

    def end(self, number: int, output: Bytes, losses: Losses) -> None:
        """The result is complete. `number` is the operation's number in its group."""

    def fail(self, number: int) -> None:
        """No result; residuals are kept for the next operation again. `number` 0: never begun."""
