"""The peers that an operation waits for, and the text that says for what."""

from collections.abc import Container, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from dlcpd.collectives.progress import Progress
from dlcpd.schedules.model import Compute, Receive, Send, Step

NOTHING_DUE: Final[Mapping[int, Compute]] = {}


class Awaiting(NamedTuple):
    """The open steps of one operation and its peers. Ranks are those of the session."""

    progress: Progress
    members: tuple[int, ...]  # rank in the session, by rank in the group
    peers: frozenset[int]  # ranks that must submit the operation
    ready_ranks: AbstractSet[int]  # ranks that did
    staged: Container[int]  # open receives whose data are here and wait for their place
    unconfirmed: AbstractSet[int] = frozenset()  # ranks that may lack READY and the data in it
    due: Mapping[int, Compute] = NOTHING_DUE  # steps that this rank's client has not computed

    def needs(self, rank: int) -> bool:
        """Whether the operation cannot end without `rank`."""
        if rank not in self.ready_ranks:
            return True
        return any(
            not isinstance(step, Send | Receive)
            or (isinstance(step, Receive) and self.members[step.peer] == rank)
            for _, step in self._open()
        )

    def owed_by(self, rank: int) -> bool:
        """Whether data of `rank` have yet to arrive."""
        return any(
            isinstance(step, Receive) and self.members[step.peer] == rank
            for _, step in self._open()
        )

    def ranks_and_text(self, label: str) -> tuple[frozenset[int], str]:
        """Ranks that the operation that `label` names waits for, and which of them owe what. No
        ranks: it waits for the client of this one."""
        ranks, what = self._first()
        listed = ", ".join(str(rank) for rank in sorted(ranks))
        return ranks, what.format(ranks=f"rank(s) {listed}", label=label)

    def _open(self) -> list[tuple[int, Step]]:
        """The steps that need something of a peer, or of another step."""
        steps = self.progress.program.steps
        return [(at, steps[at]) for at in self.progress.open if at not in self.staged]

    def _first(self) -> tuple[frozenset[int], str]:
        """Ranks that must act first, and a text with places for them and for the operation."""
        if missing := self.peers - self.ready_ranks:
            return missing, "{ranks} to submit {label}"
        for step in self.due.values():  # before peers: their data may depend on its result
            start, stop = step.target.start, step.target.start + step.target.size
            return frozenset(), f"this rank's trainer to compute bytes {start}..{stop} of {{label}}"
        open_, members = self._open(), self.members
        owing = [(at, step) for at, step in open_ if isinstance(step, Receive)]
        if owing:  # receives that other steps wait for come first: the rest may follow
            followers = self.progress.program.followers
            first = [pair for pair in owing if followers[pair[0]]] or owing
            ranks = frozenset(members[step.peer] for _, step in first)
            return ranks, "data of {ranks} for {label}"
        taking = frozenset(members[step.peer] for _, step in open_ if isinstance(step, Send))
        return taking | self.unconfirmed, "{ranks} to take their data of {label}"
