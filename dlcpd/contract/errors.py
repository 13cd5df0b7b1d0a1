"""The project's exceptions: one root class, with branches by cause.

`code` is a stable token: the metric label, the log field and the value sent
over IPC. A client turns it back into the class with `error_for`.
"""

from typing import NamedTuple

from dlcpd.contract.printable import harmless


class Peer(NamedTuple):
    """The peer that an error is about, as values besides the error's text."""

    rank: int = -1  # in the session; -1: no single peer
    host: str = ""  # its name
    address: str = ""  # UDP address and port of its first path
    awaiting: str = ""  # what operations await from it, in words


NOBODY = Peer()


class DlcpError(Exception):
    """Root of all intended errors; catch it only at the boundary of a process.

    Its text may quote a peer, a client or the job's store: control characters in it are escaped
    here.
    """

    code = "internal"
    peer = NOBODY

    def __init__(self, *args: object) -> None:
        super().__init__(*[harmless(each) if isinstance(each, str) else each for each in args])


class LocalError(DlcpError):
    """The caller or the configuration of this host broke a rule; correct it on this host."""

    code = "local"


class BadTensor(LocalError):
    """A tensor's dtype, device or layout cannot be reduced by dlcpd."""

    code = "bad_tensor"


class BadPolicy(LocalError):
    """A loss policy is out of range or does not fit the operation."""

    code = "bad_policy"


class BadOperation(LocalError):
    """An operation's arguments (ranks, tag, reduction, sizes) do not fit it or its group, or its
    memory is in use."""

    code = "bad_operation"


class BadConfig(LocalError):
    """A configuration file or option is wrong."""

    code = "bad_config"


class BadMessage(LocalError):
    """An IPC frame is not a message of this version."""

    code = "bad_message"


class BadLedger(LocalError):
    """A ledger of losses is damaged, incomplete, or not of this version."""

    code = "bad_ledger"


class BadSnapshot(LocalError):
    """A parameter server's snapshot is damaged, or of another model, job or optimizer."""

    code = "bad_snapshot"


class NotInitialised(LocalError):
    """A parameter server has no parameters yet: no worker has pushed a model."""

    code = "not_initialised"


class NotPermitted(LocalError):
    """The calling user may not use this daemon."""

    code = "not_permitted"


class ArenaFull(LocalError):
    """The shared arena, or the memory behind it, is exhausted."""

    code = "arena_full"


class DeviceFailed(LocalError):
    """A tensor of an accelerator could not be copied to the arena, or from it."""

    code = "device_failed"


class ComputationFailed(LocalError):
    """The trainer's code raised while it computed a part of an operation's result."""

    code = "computation_failed"


class AddressUnavailable(LocalError):
    """An address or port that the configuration names cannot be bound."""

    code = "address_unavailable"


class DaemonUnavailable(LocalError):
    """No daemon answers on the session socket."""

    code = "daemon_unavailable"


class DaemonLost(LocalError):
    """The daemon or its engine ended while a session was open."""

    code = "daemon_lost"


class SessionClosed(LocalError):
    """The session was closed; no further operation can be submitted."""

    code = "session_closed"


class TooMany(LocalError):
    """A bounded resource (sessions, operations in flight) is used up."""

    code = "too_many"


class PeerError(DlcpError):
    """A remote peer broke the protocol: discard, count, go on."""

    code = "peer"


class MalformedDatagram(PeerError):
    """Bytes from the network are not a datagram of this protocol.

    `reason` is the stable token under which the datagram is counted.
    """

    code = "malformed_datagram"

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class OutcomeError(DlcpError):
    """An operation ended without a result, for a reason other than a bug."""

    code = "outcome"


class RanksDisagree(OutcomeError):
    """Two ranks submitted different operations under one number."""

    code = "ranks_disagree"


class PeerLost(OutcomeError):
    """A peer died, is paused or cannot be reached.

    `rank`, `host`, `address` and `awaiting` are those of `Peer`; -1 and "" if several peers are
    missing, or the value is not known.
    """

    code = "peer_lost"

    def __init__(self, text: str = "", peer: Peer = NOBODY) -> None:
        super().__init__(text)
        self.peer = peer

    @property
    def rank(self) -> int:
        """Rank of the lost peer in the session; -1: no single peer."""
        return self.peer.rank

    @property
    def host(self) -> str:
        """Name of the peer's host."""
        return self.peer.host

    @property
    def address(self) -> str:
        """UDP address and port of the peer's first path."""
        return self.peer.address

    @property
    def awaiting(self) -> str:
        """The data or requests that operations await from the peer, in words."""
        return self.peer.awaiting


class NotAuthorised(OutcomeError):
    """A host does not authorise the key of another, or a rank does not know the job's secret."""

    code = "not_authorised"


class DeadlineExceeded(OutcomeError):
    """An operation did not finish within its deadline."""

    code = "deadline_exceeded"


class OperationAborted(OutcomeError):
    """Another rank aborted this operation; the text names the rank and the reason."""

    code = "operation_aborted"


class StaleWorker(OutcomeError):
    """A worker's push was computed with parameters older than allowed."""

    code = "stale_worker"


class ServerLost(OutcomeError):
    """A parameter server ended, and no other took over from it."""

    code = "server_lost"


class GuardStopped(OutcomeError):
    """Bounded results are further from exact ones than the training's guard allows."""

    code = "guard_stopped"


class ProbeFailed(OutcomeError):
    """A probe of a job's links has no result; the job keeps its plan."""

    code = "probe_failed"


class ReplicaDivergence(OutcomeError):
    """Two ranks hold different results of one operation. Stop the training."""

    code = "replica_divergence"


def _tree(root: type[DlcpError]) -> dict[str, type[DlcpError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found = _tree(child) | found  # a subclass without a code of its own is not the code's class
    return found


def codes() -> tuple[str, ...]:
    """The codes of all errors, sorted."""
    return tuple(sorted(_tree(DlcpError)))


def error_for(code: str, text: str, peer: Peer = NOBODY) -> DlcpError:
    """The error of the class with this `code`; of the root class if the code is unknown."""
    return made(_tree(DlcpError).get(code, DlcpError), text, peer)


def made(kind: type[DlcpError], text: str, peer: Peer = NOBODY) -> DlcpError:
    """An error of `kind`, made without the constructor of `kind`, whose arguments vary."""
    error = kind.__new__(kind)
    DlcpError.__init__(error, text)
    error.peer = peer
    return error
