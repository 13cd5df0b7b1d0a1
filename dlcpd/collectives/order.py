"""What the client asked for, beside the memory: one operation of one group, as values."""

from dataclasses import dataclass, field
from typing import NamedTuple

from dlcpd.core.transfer.layers import Layers
from dlcpd.numerics.codecs.codec import Codec


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks of a session that count operations of their own. The same on all of them."""

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
        """Ranks."""
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Loss:
    """What an operation may lose, and what becomes of it. Without a bound: nothing."""

    bound: float = 0.0  # fraction of the segments of each part of each transfer
    name: str = ""  # keys the residual
    feedback: bool = True  # False: what was waived is forgotten (for ablations)
    exempt: tuple[tuple[int, int], ...] = ()  # byte ranges that are never waived
    drop_precedences: str = "magnitude"  # what segments get theirs by; "chance", or "none"
    waive: bool = True  # False: whatever the bound, nothing here is waived
    scale: float = 1.0  # loss scale of the contribution


class Order(NamedTuple):
    """One operation. Its ranks agree when `terms`, `fingerprint` and `tag` are equal."""

    ticket: int  # the client's number for it
    group: Group
    terms: str  # in words, for the comparison and for errors
    fingerprint: int  # u64, of what the words leave out
    deadline: float  # absolute
    dtype: str
    reduce: str
    layers: Layers  # traffic class and bound, by byte of the tensor
    loss: Loss = Loss()
    tag: int = 0  # of a message
    exclusive: bool = False  # done only when the memory may be written again
    buffered: bool = False  # a message that is sent: done whether or not its receiver has come
    digest_every: int = 0  # 1 of so many pieces enters the replica digest; 0 = none
    seed: int = 0  # of the send order
    codec: Codec | None = None  # that of the program, where it encodes anything
