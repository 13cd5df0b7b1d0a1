"""Faults, phases of an operation, and modes of a job."""

from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """Faults; dlcp_lab.faults.catalog makes an Injection of each, which counts its effects."""

    KILL_TRAINER = "kill trainer"
    KILL_DAEMON = "kill daemon"
    KILL_ENGINE = "kill engine"
    PAUSE_TRAINER = "pause trainer"
    PAUSE_DAEMON = "pause daemon"
    PAUSE_ENGINE = "pause engine"
    PAUSE_HOST = "pause host"  # all its processes, as in a migration of a virtual machine
    PAUSE_TRAINER_2 = "pause trainer 2 s"
    PAUSE_TRAINER_10 = "pause trainer 10 s"
    PAUSE_TRAINER_40 = "pause trainer 40 s"
    PAUSE_DAEMON_2 = "pause daemon 2 s"
    PAUSE_DAEMON_10 = "pause daemon 10 s"
    PAUSE_DAEMON_40 = "pause daemon 40 s"
    PAUSE_ENGINE_2 = "pause engine 2 s"
    PAUSE_ENGINE_10 = "pause engine 10 s"
    PAUSE_ENGINE_40 = "pause engine 40 s"
    PAUSE_HOST_2 = "pause host 2 s"
    PAUSE_HOST_10 = "pause host 10 s"
    PAUSE_HOST_40 = "pause host 40 s"
    CUT_PATH = "cut path"
    CUT_HOST = "cut host"
    PARTITION = "partition"
    ONE_WAY = "one way"
    CORRUPT = "corrupt"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    CLOCK_JUMP = "clock jump"
    SHM_FULL = "shm full"
    FD_LIMIT = "fd limit"
    DISK_FULL = "disk full"
    RESTART = "restart"


# Pauses that end by themselves: seconds.
PAUSES: Final = {
    fault: int(fault.split()[2])
    for fault in Fault
    if fault.startswith("pause ") and fault.endswith(" s")
}

# Faults that last until the other hosts count the host as lost.
SILENCES: Final = frozenset(
    {Fault.PAUSE_ENGINE, Fault.PAUSE_HOST, Fault.CUT_HOST, Fault.PARTITION, Fault.ONE_WAY}
)


class Phase(StrEnum):
    """Phase of an operation. The relay holds the datagram that shows its begin until the fault has
    begun, so that no clock decides. The victim is the host with the fault."""

    JOINING = "joining"  # a session is requested; no operation yet
    BEFORE_READY = "before READY"  # all ranks but the victim's have submitted
    REDUCING = "reducing"  # the victim sends its first contribution
    GATHERING = "gathering"  # the victim sends its first result
    AGREEING = "agreeing on loss"  # a peer proposes to waive a segment of the victim


class Mode(StrEnum):
    """Policy of the job's operations, and the kind of its daemons."""

    EXACT = "exact"
    BOUNDED = "bounded"
    EMBEDDED = "embedded"  # exact, over private daemons
