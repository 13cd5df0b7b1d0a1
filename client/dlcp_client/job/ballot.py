"""All ranks use dlcpd, or none does: a vote before the first step."""

from collections.abc import Sequence
from typing import Any, Final

from dlcp_client.job.rendezvous import Meeting, Member
from dlcpd.contract.errors import DlcpError, PeerLost

VOTE_MARGIN: Final = 5.0  # seconds after connect's deadline until the last rank has voted


def hold(member: Member, error: DlcpError | None, *, fallback: bool, deadline: float) -> str:
    """Tell the others how connecting went. Returns why no rank may use dlcpd; "" = all may.

    `deadline`: monotonic time by which connecting was to end; votes come VOTE_MARGIN later still.

    Raises: `error`, or PeerLost for another rank's, unless every rank allows a fallback.
    """
    meeting = Meeting(member, "vote")
    meeting.publish({"problem": str(error) if error else "", "fallback": fallback})
    votes = meeting.gather(deadline + VOTE_MARGIN)
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
