"""How a session came to be: what it takes to make the next one of the same job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcp_client.arena.blocks import Library
from dlcp_client.job.store import Store


@dataclass(frozen=True, slots=True)
class Origin:
    """An epoch of a job: one membership, from the session's begin to its end."""

    store: Store  # of the job, whatever the epoch
    subject: str  # the job's name, as all its ranks give it
    config: Path | None  # of a private daemon
    library: Library[Any]  # whose arrays the sessions take
    socket: str = ""  # session socket of the host's daemon; "" = a private one
    door: str = ""  # of the private daemon, by which it takes further sessions
    lineage: str = ""  # job name of the first epoch's session, which no other job has
    epoch: int = 0
    seats: tuple[int, ...] = ()  # by rank: its rank in the epoch before, -1 = it is new
