"""The origin of a session: the values that open the next one of the same job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcp_client.arena.blocks import Library
from dlcp_client.job.store import Store


@dataclass(frozen=True, slots=True)
class SessionOrigin:
    """An epoch of a job: one membership, from the session's begin to its end."""

    store: Store  # of the job, in every epoch
    subject: str  # name of the job, equal on all ranks
    config: Path | None  # of a private daemon
    library: Library[Any]  # of the sessions' arrays
    socket: str = ""  # session socket of the host's daemon; "" = a private one
    private_socket: str = ""  # socket path of the private daemon, for further sessions
    lineage: str = ""  # job name of the first epoch's session, unique to the job
    epoch: int = 0
    seats: tuple[int, ...] = ()  # by rank: its rank in the previous epoch; -1: new
