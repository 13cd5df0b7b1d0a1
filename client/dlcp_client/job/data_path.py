"""Whether data reaches every rank: the control plane may, where a firewall drops UDP."""

import time
from typing import Any, Final

from dlcp_client.job.rendezvous import LATE, Meeting, Member, raise_refusal, refusal
from dlcp_client.session import Session
from dlcpd.contract.errors import DeadlineExceeded, DlcpError, OperationAborted, PeerLost
from dlcpd.contract.policy import exact

ELEMENTS: Final = 1024  # of float32: more than one datagram, and so a full one
TIMEOUT: Final = 30.0  # seconds; a peer that does not answer is named after about one
MIN_LEFT: Final = 0.1  # seconds; the engine says best what is missing


def prove(session: Session[Any], member: Member, deadline: float) -> None:
    """One small exact all-reduce through the engines. Every rank calls it; where one fails, all do.

    `deadline` is monotonic time. Raises: PeerLost naming the rank, and the address and port
    of UDP, that did not answer; or what else ended the operation, here or elsewhere.
    """
    meeting, error = Meeting(member, "data path"), _problem(session, deadline)
    meeting.publish(refusal(error) if error else {})
    # Nobody leaves before all know: to the others, who leaves first would be the one at fault.
    said = meeting.gather(deadline + LATE)
    if error:
        raise error
    raise_refusal(said)


def _problem(session: Session[Any], deadline: float) -> DlcpError | None:
    left = min(max(deadline - time.monotonic(), MIN_LEFT), TIMEOUT)
    try:
        probe = session.zeros(ELEMENTS)
        session.all_reduce(probe, "sum", policy=exact(deadline=left)).wait()
    except (PeerLost, DeadlineExceeded, OperationAborted) as exc:
        return PeerLost(
            f"all ranks joined, but data does not reach rank {session.rank} and back: {exc}. Let "
            f"UDP through between the hosts, in both directions; port= in [network] paths fixes "
            f"the port of a host"
        )
    except DlcpError as exc:
        return exc.with_traceback(None)  # in which `probe` would live on, and with it the arena
    return None
