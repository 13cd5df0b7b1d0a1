"""The faults of the drill, and the lines that each tool must print. Every run asserts them, and
docs/operations.md shows the real lines."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dlcp_lab.faults.kinds import Fault

VICTIM: Final = 1  # host and rank with the fault; host 0 has none
JOB: Final = "drill"


class Tool(StrEnum):
    """A tool that reports faults, by its name on the page."""

    STATUS = "dlcpctl status"
    PEERS = "dlcpctl peers"
    TOP = "dlcpctl top --once"
    PAGE = "dlcpctl page"
    METRICS = "metrics"
    LOG = "log"
    TRAINER = "trainer"


@dataclass(frozen=True, slots=True)
class Voice:
    """A tool on a host. `lines`: regular expressions; each must match a line of its output, and
    only these lines are shown. `shown`: False if the page leaves them out, being like others."""

    tool: Tool
    host: int
    lines: tuple[str, ...]
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Breakage:
    """One fault of the drill. `memory`: instead of a fault during training, the bytes of address
    space that rank VICTIM has left when it registers."""

    title: str
    how: str  # how it is injected
    meaning: str  # its effect, and the remedy
    voices: tuple[Voice, ...]
    fault: Fault | None = None
    memory: int = 0


_HEAD: Final = r"host0: dlcpd \S+, serving for"
_GONE: Final = r"host1.*no daemon answers \((Connection refused|No such file or directory)\)"
_STEPS: Final = r"^step \d+$"
_BROKEN_IN_STATUS: Final = Voice(
    Tool.STATUS, 0, (_HEAD, r"control counters: .*broken_peer_lost \d"), shown=False
)
_BROKEN_IN_METRICS: Final = Voice(
    Tool.METRICS, 0, (r'^dlcpd_control_events_total{event="broken_peer_lost"} \d',), shown=False
)
_PEER_LOST: Final = r"PeerLost: rank 1 .*on host1"

BREAKAGES: Final = (
    Breakage(
        "One path of two is cut",
        "path 0 of host1 drops all datagrams, in both directions",
        "The training continues over the other path, without a restart. dlcpd uses the path again "
        "when it answers (`path_up` in the log). Check its cable, port and switch.",
        (
            Voice(Tool.STATUS, 0, (_HEAD, "path 0 to rank 1 on host1 is down")),
            Voice(Tool.TOP, 0, (r"^PATH: drill, rank 0: path 0 to rank 1 is down",
                                r"^drill +1 +host1 +0 +down ", r"^drill +1 +host1 +1 +up ")),
            Voice(Tool.PAGE, 0, (r"^PATH: drill, rank 0: path 0 to rank 1 is down",), shown=False),
            Voice(Tool.PEERS, 0, (r" 0 +127\S+ .* down", r" 1 +127\S+ .* up"), shown=False),
            Voice(Tool.METRICS, 0, (r'^dlcpd_path_up{.*path="0".*} 0\.0',
                                    r'^dlcpd_path_up{.*path="1".*} 1\.0')),
            Voice(Tool.LOG, 0, (r"level=warning event=path_down .* peer=1 path=0",)),
            Voice(Tool.TRAINER, 0, (_STEPS,), shown=False),
        ),
        fault=Fault.CUT_PATH,
    ),
    Breakage(
        "A trainer is stopped (SIGSTOP, a debugger)",
        "SIGSTOP to the process of rank 1; its daemon runs",
        "The process lives, so its rank is not lost. The other ranks wait until the deadline of "
        "their operation (30 minutes by default), and every tool names the rank and host that they "
        "wait for. Inspect that process (`py-spy dump`, `dmesg`). The training continues when the "
        "process does.",
        (
            Voice(Tool.STATUS, 0, (_HEAD, "rank 0 waits for rank 1 on host1 .*to submit")),
            Voice(Tool.TOP, 0, (r"^LATE: drill, rank 0 waits for rank 1 on host1 for",)),
            Voice(Tool.PAGE, 0, (r"^LATE: drill, rank 0 waits for rank 1 on host1 for",),
                  shown=False),
            Voice(Tool.METRICS, 0, (r'^dlcpd_alarm{alarm="stall".*} 1\.0',
                                    r"^dlcpd_session_late_peers{.*} 1\.0")),
            Voice(Tool.TRAINER, 0, (r"^operation \d+ .* has waited for .*, for rank\(s\) 1 to",)),
        ),
        fault=Fault.PAUSE_TRAINER,
    ),
    Breakage(
        "A daemon is killed in mid-training",
        "SIGKILL of host1's daemon, without a service manager",
        "Both ranks end with an error that names the failed host or its daemon. Restart the job "
        "from its last checkpoint. systemd restarts the daemon, and `journalctl -u dlcpd` shows "
        "why it ended.",
        (
            Voice(Tool.STATUS, 1, (_GONE,)),
            _BROKEN_IN_STATUS,
            Voice(Tool.TOP, 1, (_GONE,), shown=False),
            Voice(Tool.PAGE, 1, (_GONE,), shown=False),
            _BROKEN_IN_METRICS,
            Voice(Tool.LOG, 0, (r"event=session_broken .*peer=1 code=peer_lost "
                                r'text="rank 1 on host1 has not answered for',)),
            Voice(Tool.TRAINER, 0, (_PEER_LOST + " has not answered for",)),
            Voice(Tool.TRAINER, 1, (r"DaemonLost: dlcpd ended while the session was open",)),
        ),
        fault=Fault.KILL_DAEMON,
    ),
    Breakage(
        "A host is stopped (SIGSTOP of all its processes, migration of a virtual machine)",
        "SIGSTOP to trainer, daemon and engine of host1",
        "After `peer_timeout` (1 s here) rank 1 is lost. The tools on host1 do not answer. If your "
        "hosts stop for longer and come back, raise `[network] peer_timeout`.",
        (
            Voice(Tool.STATUS, 1, (r"host1.*the daemon did not answer within 15 s; see its log",)),
            _BROKEN_IN_STATUS,
            _BROKEN_IN_METRICS,
            Voice(Tool.LOG, 0, (r"event=session_broken .*peer=1 code=peer_lost",)),
            Voice(Tool.TRAINER, 0, (_PEER_LOST + " has not answered for",)),
        ),
        fault=Fault.PAUSE_HOST,
    ),
    Breakage(
        "A trainer is killed (SIGKILL, the kernel's OOM killer)",
        "SIGKILL of rank 1's process",
        "Its daemon detects the end at once and tells the other ranks, which end within "
        "milliseconds. `dmesg` of the host shows whether the OOM killer ended it.",
        (
            _BROKEN_IN_STATUS,
            _BROKEN_IN_METRICS,
            Voice(Tool.LOG, 1, (r"event=client_left client=training_script",)),
            Voice(Tool.LOG, 0, (r"event=session_broken .*peer=1 code=peer_lost",)),
            Voice(Tool.TRAINER, 0, (_PEER_LOST,)),
        ),
        fault=Fault.KILL_TRAINER,
    ),
    Breakage(
        "No memory for the arena",
        "rank 1 registers with 24 MB of address space left, as with `ulimit -v`",
        "The error of rank 1 names the limit and the remedy, and the error of rank 0 names rank 1. "
        "No process hangs or remains, and the daemons continue.",
        (
            Voice(Tool.STATUS, 0, (_HEAD, "^0 sessions$"), shown=False),
            Voice(Tool.LOG, 1, (r"event=client_left client=training_script",)),
            Voice(Tool.TRAINER, 1, ("ArenaFull: .*cannot map an arena of .*arena_bytes",)),
            Voice(Tool.TRAINER, 0, (r"(ArenaFull|PeerLost): ",)),
        ),
        memory=24 << 20,
    ),
)  # fmt: skip
