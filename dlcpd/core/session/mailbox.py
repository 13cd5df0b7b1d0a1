"""Matches messages and receivers: by group, tag and source, in order of arrival."""

from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")
ANY: Final = -1  # a receiver that takes messages of every rank


@dataclass(frozen=True, slots=True)
class Announced:
    """A message that a peer offers."""

    rank: int
    stream: int  # on the wire
    number: int
    group: int
    tag: int


@dataclass(frozen=True, slots=True, eq=False)
class Wanted(Generic[T]):
    """A receiver that waits for its message."""

    group: int
    rank: int  # or ANY
    tag: int
    receiver: T

    def takes(self, message: Announced) -> bool:
        """Whether the message is for this receiver."""
        return (
            self.group == message.group
            and self.tag == message.tag
            and self.rank in (ANY, message.rank)
        )


@dataclass(slots=True)
class Mailbox(Generic[T]):
    """Both lists are short where ranks are in step; `Stream.near` bounds the first, the session's
    MAX_OPEN the second."""

    messages: list[Announced] = field(default_factory=list)
    receivers: list[Wanted[T]] = field(default_factory=list)

    def on_message(self, message: Announced) -> T | None:
        """The receiver that waits for a message; without one the message is kept."""
        for wanted in self.receivers:
            if wanted.takes(message):
                self.receivers.remove(wanted)
                return wanted.receiver
        self.messages.append(message)
        return None

    def on_receiver(self, wanted: Wanted[T]) -> Announced | None:
        """The oldest message for a receiver; without one the receiver is kept."""
        for message in self.messages:
            if wanted.takes(message):
                self.messages.remove(message)
                return message
        self.receivers.append(wanted)
        return None

    def withdraw(self, rank: int, stream: int, number: int) -> None:
        """The sender aborted a message."""
        self.messages = [
            m for m in self.messages if (m.rank, m.stream, m.number) != (rank, stream, number)
        ]

    def cancel(self, receiver: T) -> None:
        """A receiver waits no longer."""
        self.receivers = [w for w in self.receivers if w.receiver is not receiver]
