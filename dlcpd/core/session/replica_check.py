"""Compares results with those of the peers, by digest: while operations go on, and at the end."""

from dataclasses import dataclass, field

from dlcpd.contract.errors import ReplicaDivergence
from dlcpd.core.session.digests import Digest
from dlcpd.core.session.events import Concluded
from dlcpd.core.session.failures import Failures
from dlcpd.core.session.final_digests import FinalDigests, answer, lacking
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.operation import Operation
from dlcpd.core.session.state import SessionState
from dlcpd.core.session.stream import Stream
from dlcpd.core.timers import Timer
from dlcpd.core.wire import control
from dlcpd.core.wire.header import Flag, Header


@dataclass(slots=True, eq=False, repr=False)
class ReplicaCheck:
    """Breaks the session when a peer holds another result, and reports `Concluded` at its end."""

    state: SessionState
    failures: Failures
    _final: FinalDigests = field(default_factory=FinalDigests)

    def add(self, operation: Operation, digest: Digest) -> None:
        """The result of an operation is in place; peers may have sent their digests of it."""
        wire, peer, number = operation.id
        stream = self.state.streams[wire, peer]
        rank = stream.digests.add(number, digest, operation.peers)
        if rank is not None:
            self.diverged(rank, stream, number)

    def diverged(self, rank: int, stream: Stream, number: int) -> None:
        """`rank` has another result of an operation."""
        text = (
            f"rank {rank} on {self.state.flows[rank].host} and rank {self.state.rank} here hold "
            f"different results of {stream.digests.describe(number)}: replicas have diverged. "
            f"Stop, and restart from the last checkpoint"
        )
        self.failures.fail_all(rank, ReplicaDivergence(text))

    def on_digests(self, flow: Flow, header: Header, body: bytes) -> None:
        """A peer sends its digests, and may ask for those of this rank. Raises
        MalformedDatagram."""
        rows = control.unpack_digests_untrusted(body)
        stream = self.state.streams.of_peer(header.stream, flow.rank)
        for number, known, digest in rows:
            if not known:
                stream.digests.forgo(flow.rank, number)
            elif not stream.digests.check(flow.rank, number, digest):
                self.diverged(flow.rank, stream, number)
                break
        if header.flags & Flag.ASK:
            answer(flow, stream, rows, self._unfinished(stream))
        if self._final.begun:
            self._conclude_if_equal()

    def _unfinished(self, stream: Stream) -> set[int]:
        """Operations of a stream that have no result yet."""
        here, operations = (stream.wire, stream.peer), self.state.operations
        return {id_[2] for id_, op in operations.items() if id_[:2] == here and not op.done}

    # --- the end ----------------------------------------------------------------------------

    def conclude(self, now: float, until: float) -> None:
        """The owner is about to leave: compare the remaining results, and report `Concluded`, at
        `until` at the latest."""
        if not self._final.until:
            self._final.until = until
            self.ask(now)

    def ask(self, now: float) -> None:
        """Ask peers for the digests that are lacking, until `until`."""
        state = self.state
        flows, streams = list(state.flows.values()), list(state.streams.values())
        count = self._final.ask(streams, flows, state.departed.silent)
        if not count or now >= self._final.until:
            self._concluded(count)
            return
        at = min(now + self._final.wait(flows), self._final.until)
        state.timers.set((state.owner, Timer.DIGESTS, None), at)

    def _conclude_if_equal(self) -> None:
        streams, silent = list(self.state.streams.values()), self.state.departed.silent
        if not any(lacking(streams, flow, silent) for flow in self.state.flows.values()):
            self._concluded(0)

    def _concluded(self, unconfirmed: int) -> None:
        state = self.state
        self._final.over = True
        state.timers.cancel((state.owner, Timer.DIGESTS, None))
        state.outcomes.events.append(Concluded(state.number, unconfirmed))
