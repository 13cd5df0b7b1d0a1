"""What can go wrong, and when."""

from enum import StrEnum


class Fault(StrEnum):
    """Each is an Injection of dlcp_lab.faults.injections, which counts what it did."""

    KILL_TRAINER = "kill trainer"
    KILL_DAEMON = "kill daemon"
    KILL_ENGINE = "kill engine"
    PAUSE_TRAINER = "pause trainer"
    PAUSE_DAEMON = "pause daemon"
    PAUSE_ENGINE = "pause engine"
    PAUSE_HOST = "pause host"  # all of its processes, as a virtual machine that moves
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
