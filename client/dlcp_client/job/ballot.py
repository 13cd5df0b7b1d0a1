"""All ranks use dlcpd, or none does: a vote before the first step."""

from collections.abc import Sequence
from typing import Any, Final

from dlcp_client.job.rendezvous import LATE, Meeting, Member, launched
from dlcpd.contract.errors import BadConfig, DlcpError, NotAuthorised, PeerLost

VOTE_MARGIN: Final = 5.0  # seconds after connect's deadline until the last rank has voted


def hold(
    member: Member,
    error: DlcpError | None,
    *,
    fallback: bool,
    deadline: float,
    transport: str = "dlcp",
) -> str:
    """Tell the others how connecting went. Returns why no rank may use dlcpd; "" = all may.

    `deadline`: monotonic time by which connecting was to end; votes come VOTE_MARGIN later still.
    `transport`: what this rank asked for, which must be the same on all.

    Raises: `error`, or PeerLost for another rank's, unless every rank allows a fallback, which
        nobody does for NotAuthorised;
        BadConfig likewise where ranks asked for different transports.
    """
    if member.secret is not None:  # a vote of an earlier launch is none
        member = launched(member, "vote", deadline + VOTE_MARGIN)
    meeting = Meeting(member, "vote")
    # Whoever can write the store could else take a job from dlcpd to what asks nobody who they are.
    allowed = fallback and not isinstance(error, NotAuthorised)
    own = {"problem": str(error) if error else "", "fallback": allowed, "transport": transport}
    meeting.publish(own)
    votes = meeting.gather(deadline + VOTE_MARGIN + LATE)
    problem, differing = verdict(votes), difference(votes)
    if not all(vote.get("fallback") is True for vote in votes):
        if problem:
            raise error or PeerLost(problem)
        if differing:
            raise BadConfig(differing)
    return problem or differing


def verdict(votes: Sequence[dict[str, Any]]) -> str:
    """The first rank's problem; "" when none has one."""
    for rank, vote in enumerate(votes):
        if vote.get("problem"):
            return f"rank {rank} cannot use dlcpd: {vote['problem']}"
    return ""


def difference(votes: Sequence[dict[str, Any]]) -> str:
    """The first rank that asked for another transport than rank 0; "" when none did.

    They would wait for each other in different places until a deadline.
    """
    asked = [vote.get("transport", "dlcp") for vote in votes]
    for rank, transport in enumerate(asked):
        if transport != asked[0]:
            return f"rank {rank} asks for transport {transport!r}, rank 0 for {asked[0]!r}"
    return ""
