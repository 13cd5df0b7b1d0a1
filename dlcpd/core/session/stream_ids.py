"""How streams and their operations are numbered."""

from typing import Final

from dlcpd.contract.messages import MAX_GROUPS
from dlcpd.core.wire.header import Header, Key

UPWARD: Final = MAX_GROUPS  # messages from the lower of two ranks to the higher
DOWNWARD: Final = 2 * MAX_GROUPS
MESSAGES: Final = UPWARD | DOWNWARD
EVERYBODY: Final = -1  # peer of a stream of collectives

StreamId = tuple[int, int]  # number in datagrams, peer: both ranks of a message use the same number
OperationId = tuple[int, int, int]  # number of the stream, peer or EVERYBODY, number in the stream


def stream_id(wire: int, rank: int) -> StreamId:
    """The stream with number `wire` in datagrams of `rank`."""
    return wire, rank if wire & MESSAGES else EVERYBODY


def operation_id(name: Header | Key, rank: int) -> OperationId:
    """The operation that a datagram or transfer of `rank` belongs to."""
    wire = name.stream
    return wire, rank if wire & MESSAGES else EVERYBODY, name.operation


def messages(group: int, source: int, destination: int) -> int:
    """Number in datagrams of the messages of a group from one rank to another."""
    return group | (UPWARD if source < destination else DOWNWARD)


def is_known(wire: int) -> bool:
    """Whether a number can be that of a stream."""
    return wire & MESSAGES != MESSAGES
