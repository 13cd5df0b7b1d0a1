"""Expected outcome of each cell of the matrix. Data, which every run asserts."""

from dataclasses import dataclass
from typing import Final

from dlcp_lab.faults.kinds import PAUSES, Fault, Mode, Phase
from dlcp_lab.faults.trainer import DEAD, RESULT

PEER_LOST: Final = "peer_lost"
DAEMON_LOST: Final = "daemon_lost"
# Of a rank that its peers excluded: the code depends on the peer whose message arrives first.
LEFT_OUT: Final = "peer_lost or operation_aborted"


@dataclass(frozen=True, slots=True)
class Expected:
    """Error codes that the other ranks (`survivors`) and the rank of the host with the fault must
    see. " or " separates alternatives."""

    survivors: str
    victim: str
    ends_session: bool = False  # though the operation ends well

    @property
    def then(self) -> str:
        """In what the next operation works: "same session" or "new job"."""
        well = self.survivors == self.victim == RESULT and not self.ends_session
        return "same session" if well else "new job"


FINE: Final = Expected(RESULT, RESULT)
OPERATION: Final = (Phase.BEFORE_READY, Phase.REDUCING, Phase.GATHERING, Phase.AGREEING)
SAME: Final[dict[Fault, Expected]] = {  # in every phase of an operation
    Fault.KILL_TRAINER: Expected(PEER_LOST, DEAD),
    Fault.KILL_DAEMON: Expected(PEER_LOST, DAEMON_LOST),
    Fault.KILL_ENGINE: Expected(PEER_LOST, DAEMON_LOST),
    Fault.RESTART: Expected(RESULT, RESULT, ends_session=True),  # open operations finish first
    Fault.PAUSE_TRAINER: FINE,
    Fault.PAUSE_DAEMON: FINE,
    Fault.PAUSE_ENGINE: Expected(PEER_LOST, LEFT_OUT),
    Fault.PAUSE_HOST: Expected(PEER_LOST, LEFT_OUT),
    # Suspected after a second, lost after 30 s; operations continue if the host comes back.
    **dict.fromkeys(PAUSES, FINE),
    Fault.PAUSE_ENGINE_40: Expected(PEER_LOST, LEFT_OUT),
    Fault.PAUSE_HOST_40: Expected(PEER_LOST, LEFT_OUT),
    Fault.CUT_PATH: FINE,
    Fault.CUT_HOST: Expected(PEER_LOST, LEFT_OUT),
    Fault.PARTITION: Expected(PEER_LOST, LEFT_OUT),
    # Neither side gets answers, and each counts the other as lost.
    Fault.ONE_WAY: Expected(LEFT_OUT, LEFT_OUT),
    Fault.CORRUPT: FINE,
    Fault.DUPLICATE: FINE,
    Fault.REORDER: FINE,
    Fault.CLOCK_JUMP: FINE,
    Fault.SHM_FULL: FINE,
    Fault.FD_LIMIT: FINE,
    Fault.DISK_FULL: FINE,
}
OTHERWISE: Final[dict[tuple[Fault, Phase], Expected]] = {
    # The rank that reaches both may already have the whole result.
    (Fault.PARTITION, Phase.GATHERING): Expected("peer_lost or result", LEFT_OUT),
    (Fault.RESTART, Phase.BEFORE_READY): Expected(PEER_LOST, DAEMON_LOST),
    # Clients wait to be accepted, until their own timeout.
    (Fault.FD_LIMIT, Phase.JOINING): Expected("daemon_unavailable", "daemon_unavailable"),
    (Fault.SHM_FULL, Phase.JOINING): Expected("arena_full", "arena_full"),
    (Fault.CUT_HOST, Phase.JOINING): Expected(PEER_LOST, PEER_LOST),
    (Fault.ONE_WAY, Phase.JOINING): Expected(PEER_LOST, PEER_LOST),
    (Fault.PAUSE_DAEMON, Phase.JOINING): FINE,
}
PRIVATE: Final = (  # where a private daemon may make a difference
    Fault.KILL_TRAINER, Fault.KILL_DAEMON, Fault.KILL_ENGINE, Fault.PAUSE_TRAINER,
    Fault.PAUSE_ENGINE, Fault.PAUSE_ENGINE_2, Fault.PAUSE_ENGINE_10, Fault.PAUSE_ENGINE_40,
    Fault.PAUSE_HOST_10,
)  # fmt: skip
Key = tuple[Fault, Phase, Mode]


def cells() -> dict[Key, Expected]:
    """All cells, in the order of the table."""
    found = {}
    for fault in SAME:
        for phase in Phase:
            for mode in Mode:
                if expected := _expected(fault, phase, mode):
                    found[fault, phase, mode] = expected
    return found


def _expected(fault: Fault, phase: Phase, mode: Mode) -> Expected | None:
    """Expected outcome of a cell; None if it does not exist."""
    special = OTHERWISE.get((fault, phase))
    if phase is Phase.JOINING:
        return special if mode is Mode.EXACT else None
    if fault is Fault.SHM_FULL and not special:
        return None  # an operation that runs has its memory
    if fault in PAUSES and phase is not Phase.REDUCING:
        return None
    if mode is Mode.EMBEDDED and fault not in PRIVATE:
        return None
    if phase is Phase.AGREEING and mode is not Mode.BOUNDED:
        return None
    return special or SAME[fault]
