"""A vote before the first step: all ranks use dlcpd, or none does."""

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
    """Publish this rank's result of connecting. Returns why no rank may use dlcpd; "": all may.

    `deadline`: monotonic time by which connecting ends; votes end VOTE_MARGIN later. `transport`:
    the one that this rank asked for, equal on all ranks.

    Raises: `error`, or PeerLost for another rank's, unless every rank allows a fallback, which is
        never allowed for NotAuthorised; likewise BadConfig if ranks asked for different transports.
    """
    if member.secret is not None:  # ignore votes of an earlier launch
        member = launched(member, "vote", deadline + VOTE_MARGIN)
    meeting = Meeting(member, "vote")
    # Else a process that can write to the store could move a job from dlcpd to a backend without
    # authentication.
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
    """The problem of the first rank that has one; "" if none has."""
    for rank, vote in enumerate(votes):
        if vote.get("problem"):
            return f"rank {rank} cannot use dlcpd: {vote['problem']}"
    return ""


def difference(votes: Sequence[dict[str, Any]]) -> str:
    """Names the first rank whose transport differs from rank 0's; "" if all are equal.

    Ranks with different transports would wait for each other until a deadline.
    """
    asked = [vote.get("transport", "dlcp") for vote in votes]
    for rank, transport in enumerate(asked):
        if transport != asked[0]:
            return (
                f"rank {rank} has transport {transport!r}, and rank 0 has {asked[0]!r}: give "
                "all ranks the same transport="
            )
    return ""
