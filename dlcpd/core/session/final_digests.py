"""The end of a session: the last results are compared as well.

READY carries the digest of an earlier operation, so no READY carries those of the last ones. Before
a rank leaves it asks its peers for the digests that it lacks; they compare as they answer, so each
result is compared on both sides, in whichever order they leave. Asking is idempotent, and repeated
until all have answered or `until` has come.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from dlcpd.core.paths.paths import CONTROL
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.stream import Stream
from dlcpd.core.wire.control import MAX_DIGEST_ROWS, DigestRow, pack_digests
from dlcpd.core.wire.header import Flag, Header, Kind

MAX_WAIT: Final = 0.05  # seconds between two questions: the closing client waits for the answer


@dataclass(slots=True)
class FinalDigests:
    """The digests that a rank lacks, and when to ask again."""

    until: float = 0.0  # absolute; 0: the session goes on
    attempt: int = 0
    over: bool = False  # the end was reported

    @property
    def begun(self) -> bool:
        """Whether the rank wants to leave."""
        return self.until > 0 and not self.over

    def ask(self, streams: list[Stream], flows: list[Flow], silent: Container[int]) -> int:
        """Ask every peer, except `silent` ranks, for the digests that it has not sent. Returns how
        many these are."""
        count = 0
        for flow in flows:
            for stream, operations in lacking(streams, flow, silent):
                count += len(operations)
                for at in range(0, len(operations), MAX_DIGEST_ROWS):
                    _tell(flow, stream, operations[at : at + MAX_DIGEST_ROWS], ask=True)
        self.attempt += 1
        return count

    def wait(self, flows: list[Flow]) -> float:
        """Seconds until it is time to ask again."""
        waits = [flow.paths.timeout(CONTROL, self.attempt) for flow in flows]
        return min([MAX_WAIT, *waits])


def lacking(
    streams: list[Stream], flow: Flow, silent: Container[int]
) -> list[tuple[Stream, list[int]]]:
    """Operations by stream whose digests a peer has not sent; none of a `silent` rank, which
    answers nothing more."""
    if flow.rank in silent:
        return []
    found = [(stream, stream.digests.unconfirmed(flow.rank)) for stream in streams]
    return [(stream, operations) for stream, operations in found if operations]


def answer(flow: Flow, stream: Stream, asked: list[DigestRow], open_: set[int]) -> None:
    """Send a peer the digests that it asks for. Those of `open_` operations follow when it asks
    again. The answer is no longer than the question."""
    operations = [row.operation for row in asked if row.operation not in open_]
    begun = [number for number in operations if stream.has_begun(number)]
    if begun:
        _tell(flow, stream, begun, ask=False)


def _tell(flow: Flow, stream: Stream, operations: list[int], *, ask: bool) -> None:
    own = [(number, stream.digests.own(number)) for number in operations]
    rows = [DigestRow(number, digest is not None, digest or 0) for number, digest in own]
    flags = Flag.ASK if ask else Flag.NONE
    header = Header(Kind.DIGESTS, flow.token_out, stream=stream.wire, flags=flags)
    flow.outbox.put(header, pack_digests(rows))
