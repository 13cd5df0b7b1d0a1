"""What can go wrong, and when."""

from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """Each is an Injection of dlcp_lab.faults.injections, which counts what it did."""

    KILL_TRAINER = "kill trainer"
    KILL_DAEMON = "kill daemon"
    KILL_ENGINE = "kill engine"
    PAUSE_TRAINER = "pause trainer"
    PAUSE_DAEMON = "pause daemon"
    PAUSE_ENGINE = "pause engine"
    PAUSE_HOST = "pause host"  # all of its processes, as a virtual machine that moves
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

# Faults that last until the others have given the host up.
SILENCES: Final = frozenset(
    {Fault.PAUSE_ENGINE, Fault.PAUSE_HOST, Fault.CUT_HOST, Fault.PARTITION, Fault.ONE_WAY}
)


class Phase(StrEnum):
    """Of an operation. What shows that it has begun passes the relay, and waits there for the
    fault to begin: no clock decides."""

    JOINING = "joining"  # a session is asked for; no operation yet
    BEFORE_READY = "before READY"  # the others have submitted, the host that fails has not
    REDUCING = "reducing"  # its first contribution leaves it
    GATHERING = "gathering"  # its first result leaves it
    AGREEING = "agreeing on loss"  # somebody would go without a segment of it, and asks


class Mode(StrEnum):
    """How the job works."""

    EXACT = "exact"
    BOUNDED = "bounded"
    EMBEDDED = "embedded"  # exact, over private daemons
