"""Tests that data reaches every rank: a firewall may drop UDP but not the control plane."""

import time
from typing import Any, Final

from dlcp_client.job.rendezvous import LATE, Meeting, Member, raise_refusal, refusal
from dlcp_client.session import Session
from dlcpd.contract.errors import DeadlineExceeded, DlcpError, OperationAborted, PeerLost
from dlcpd.contract.policy import exact

ELEMENTS: Final = 1024  # of float32: more than one datagram, so that one is full
TIMEOUT: Final = 30.0  # seconds; a peer that does not answer is named after about one
MIN_LEFT: Final = 0.1  # seconds, for the engine to report the missing peers


def prove(session: Session[Any], member: Member, deadline: float) -> None:
    """Run one small exact all-reduce through the engines. Every rank calls it; it fails on all or
    none.

    `deadline` is monotonic time. Raises: PeerLost naming the rank that did not answer, with its UDP
    address and port; or another error that ended the operation, here or elsewhere.
    """
    meeting, error = Meeting(member, "data path"), _problem(session, deadline)
    meeting.publish(refusal(error) if error else {})
    # No rank leaves before all have the result: peers would blame the first one to leave.
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
            f"all ranks joined, but no data reached rank {session.rank} and came back: {exc}. "
            "Allow UDP between the hosts in both directions; port= in [network] paths fixes "
            "the port of a host"
        )
    except DlcpError as exc:
        return exc.with_traceback(None)  # which would keep `probe` and the arena alive
    return None
