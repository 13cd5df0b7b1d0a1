"""All ranks use dlcpd, or none does: a vote before the first step."""

import time
from collections.abc import Sequence
from typing import Any, Final

from dlcpd.contract.errors import DlcpError, PeerLost

from .rendezvous import Meeting, Place

VOTE_MARGIN: Final = 30.0  # seconds beyond connect's own timeout until the last rank has voted


def hold(place: Place, error: DlcpError | None, *, fallback: bool, timeout: float) -> str:
    """Tell the others how connecting went. Returns why no rank may use dlcpd; "" = all may.

    Raises: `error`, or PeerLost for another rank's, unless every rank allows a fallback.
    """
    meeting = Meeting(place, "vote")
    meeting.publish({"problem": str(error) if error else "", "fallback": fallback})
    votes = meeting.gather(time.monotonic() + timeout + VOTE_MARGIN)
    problem = verdict(votes)
    if problem and not all(vote.get("fallback") is True for vote in votes):
        raise error or PeerLost(problem)
    return problem


def verdict(votes: Sequence[dict[str, Any]]) -> str:
    """The first rank's problem; "" when none has one."""
    for rank, vote in enumerate(votes):
        if vote.get("problem"):
            return f"rank {rank} cannot use dlcpd: {vote['problem']}"
    return ""
