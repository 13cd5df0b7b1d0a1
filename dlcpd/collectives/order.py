"""One operation of one group as the client requested it, without its memory."""

from dataclasses import dataclass, field
from typing import NamedTuple

from dlcpd.core.session.stream_ids import MESSAGES, OperationId
from dlcpd.core.transfer.layers import Layers
from dlcpd.numerics.codecs.codec import Codec


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks of a session that share a sequence of operation numbers."""

    number: int
    members: tuple[int, ...]  # rank in the session, by rank in the group
    rank: int  # this one's, in the group
    name: str = ""  # for errors; the group of all ranks has none
    index: dict[int, int] = field(init=False)  # rank in the group, by rank in the session

    def __post_init__(self) -> None:
        index = {rank: place for place, rank in enumerate(self.members)}
        object.__setattr__(self, "index", index)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss that an operation tolerates, and its treatment. Without a bound: none."""

    bound: float = 0.0  # fraction of the segments of each part of each transfer
    name: str = ""  # keys the residual
    feedback: bool = True  # False: waived values are discarded (for ablations)
    exempt: tuple[tuple[int, int], ...] = ()  # byte ranges that are never waived
    drop_precedences: str = "magnitude"  # their basis: this, "chance" or "none"
    waive: bool = True  # False: this rank waives nothing, whatever the bound
    scale: float = 1.0  # loss scale of the contribution


class Order(NamedTuple):
    """One operation. Its ranks agree when `terms`, `fingerprint` and `tag` are equal."""

    ticket: int  # the client's number for it
    group: Group
    terms: str  # in words, for the comparison and for errors
    fingerprint: int  # u64, of the values that the words leave out
    deadline: float  # absolute
    dtype: str
    reduce: str
    layers: Layers  # traffic class and bound, by byte of the tensor
    loss: Loss = Loss()
    tag: int = 0  # of a message
    exclusive: bool = False  # done only when the memory may be written again
    buffered: bool = False  # a message that is sent: done even if its receiver is not ready
    digest_every: int = 0  # every n-th piece enters the replica digest; 0 = none
    seed: int = 0  # of the send order
    codec: Codec | None = None  # that of the program, if it encodes
    computes: bool = False  # the clients compute the result, which alone is encoded then

    @property
    def encodes(self) -> bool:
        """Whether contributions are encoded."""
        return self.codec is not None and not self.computes

    def label(self, id_: OperationId) -> str:
        """For errors: the number that all ranks give the operation, and the group."""
        kind = "message" if id_[0] & MESSAGES else "operation"
        number = f"{kind} {id_[2]}" if id_[2] else self.terms
        return f"{number} of group {self.group.name}" if self.group.name else number
