"""What a client may say on its lane, in any order: each frame has one answer, each operation one
end."""

import os
import socket
from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.errors import BadMessage, DlcpError, PeerLost
from dlcpd.contract.frames import encode
from dlcpd.contract.inquiries import StatusRequest
from dlcpd.contract.messages import VERSION, CloseGroup, Hello, Joined, Message, OpenGroup
from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.session.events import OperationDone, OperationFailed
from dlcpd.io.clients.client import Client
from dlcpd.io.clients.lane import Lane
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.config import EngineConfig
from tests.io.engines import ask

WORLD: Final = 3
ARENA: Final = 1 << 16  # bytes
GROUPS: Final = (1, 2, 3)
GOOD: Final = {1: [1, 0], 2: [0], 3: [0, 2]}  # ranks of each group; 2 is of this rank alone
BAD_RANKS: Final[tuple[list[int], ...]] = (
    [],
    [1, 2],
    [0, 0],
    [0, 3],
    [0, -1],
    [0, 1 << 40],
    list(range(1, 200)),
)
NOT_FOR_A_LANE: Final = (Hello(VERSION, "me"), Joined(1, ARENA), StatusRequest(1))
PLACE: Final = 448  # bytes of an operation's memory, a multiple of 64: none is in another's way
DEADLINE: Final = 5.0  # seconds of virtual time
# Wrong in one way each; "send" because it is refused in another way than collectives are.
REFUSED: Final[tuple[dict[str, Any], ...]] = (
    {"input": ARENA}, {"output": 4}, {"count": 1 << 29}, {"output_count": 7}, {"peer": WORLD},
    {"schedule": "spiral"}, {"max_loss": 0.1}, {"sizes": [[1, 1]]}, {"exempt": [[8, 4]]},
    {"layers": [[4, 0, 0]]}, {"divided": True, "collective": "send", "peer": 1, "output_count": 0},
    {"collective": "send", "peer": 0, "output_count": 0}, {"dtype": "int32", "reduce": "avg"},
)  # fmt: skip
GARBAGE: Final = st.one_of(
    st.binary(min_size=1, max_size=64),
    st.sampled_from(
        [encode(ask(1))[:-1], encode(ask(1)) + b"\0", b"\x92\x09\x90", b"\xc0" * 200_000]
    ),
)

pytestmark = pytest.mark.timeout(600)  # seconds; it takes 15 s of CPU, on cores that others use


class LaneMachine(RuleBasedStateMachine):
    """The model: groups that are open, the last number, and what each operation has come to."""

    def __init__(self) -> None:
        super().__init__()
        self.endpoint = Endpoint(1152, 1 << 20, SendScheduler(Pacer(0.0)))
        peers = [PeerSpec(n, f"host{n}", n, WORLD + n, 1) for n in range(1, WORLD)]
        self.session = self.endpoint.open_session(1, 0, peers, peer_timeout=1e9)
        self.socket, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arena = create_arena(ARENA)
        os.pwrite(arena, bytes(ARENA), 0)  # all of it is committed
        self.lane = Lane(1, arena, ARENA, ours.detach())
        config = EngineConfig()
        self.client = Client(self.lane, self.session, config, ScratchPool(config.chunk_bytes))
        self.now, self.groups, self.submitted = 10.0, {0}, 0
        self.running: dict[int, int] = {}  # ticket -> group
        self.ended: Counter[int] = Counter()  # by ticket

    def say(self, frame: bytes) -> DlcpError | None:
        """One frame to the engine; its answer. Raises: BadMessage."""
        self.socket.send(frame)
        message = self.lane.receive()
        assert message is not None
        return self.client.handle(message, self.now)

    def after(self) -> None:
        """Let the endpoint work, and note what has ended."""
        self.endpoint.exchange(self.now)
        _, batches = self.endpoint.departures(self.now)
        list(batches)
        for event in self.session.outcomes.take():
            if isinstance(event, OperationDone | OperationFailed):
                self.ended[event.ticket] += 1
                self.running.pop(event.ticket, None)

    def refused(self, frame: bytes) -> None:
        with pytest.raises(BadMessage):
            self.say(frame)
        self.after()

    # --- operations -------------------------------------------------------------------

    def submit(self, group: int, **options: Any) -> DlcpError | None:
        self.submitted += 1
        place = self.submitted * PLACE % (ARENA - PLACE)
        fields = {"group": group, "count": 100, "deadline": DEADLINE, "traffic_class": 1}
        fields |= {"input": place, "output": place} | options
        return self.say(_packed(ask(self.submitted, **fields)))

    @rule(
        group=st.sampled_from((0, *GROUPS)), collective=st.sampled_from(("all_reduce", "barrier"))
    )
    def submit_collective(self, group: int, collective: str) -> None:
        count = 100 if collective == "all_reduce" else 0
        error = self.submit(group, collective=collective, count=count)
        if self.session.broken is not None:
            assert error is not None and error.code == "peer_lost"
        elif group not in self.groups:
            assert isinstance(error, BadMessage)
        else:
            assert error is None
            self.running[self.submitted] = group
        self.after()

    @precondition(lambda self: self.session.broken is None)
    @rule(tag=st.integers(0, 1), sending=st.booleans())
    def submit_message(self, tag: int, sending: bool) -> None:
        counts = {"input_count": 100 * sending, "output_count": 100 * (not sending)}
        collective = "send" if sending else "receive"
        assert self.submit(0, collective=collective, peer=1, tag=tag, **counts) is None
        self.running[self.submitted] = 0
        self.after()

    @precondition(lambda self: self.session.broken is None)
    @rule(options=st.sampled_from(REFUSED))
    def submit_what_is_refused(self, options: dict[str, Any]) -> None:
        """Told once: as the answer, or as the end of the operation."""
        error, ticket = self.submit(0, **options), self.submitted
        self.after()
        assert self.ended[ticket] == (error is None)

    @rule(gap=st.sampled_from([-2, -1, 0, 2, 1000]))
    def submit_out_of_order(self, gap: int) -> None:
        number = self.submitted + gap
        if number >= 1:
            error = self.say(_packed(ask(number, count=100)))
            assert isinstance(error, BadMessage)
        self.after()

    # --- groups -----------------------------------------------------------------------

    @rule(group=st.sampled_from(GROUPS))
    def open_group(self, group: int) -> None:
        frame = encode(OpenGroup(group, "g", GOOD[group]))
        if group in self.groups:
            self.refused(frame)
        else:
            assert self.say(frame) is None
            self.groups.add(group)

    @rule(group=st.sampled_from(GROUPS), ranks=st.sampled_from(BAD_RANKS))
    def open_no_group(self, group: int, ranks: list[int]) -> None:
        self.refused(encode(OpenGroup(group, "g", ranks)))

    @rule(group=st.sampled_from(GROUPS))
    def close_group(self, group: int) -> None:
        """What is open of it ends."""
        frame = encode(CloseGroup(group))
        if group not in self.groups:
            self.refused(frame)
            return
        assert self.say(frame) is None
        self.groups.discard(group)
        self.after()
        assert group not in self.running.values()

    # --- anything else ------------------------------------------------------------------

    @rule(frame=GARBAGE)
    def garbage(self, frame: bytes) -> None:
        self.refused(frame)

    @rule(message=st.sampled_from(NOT_FOR_A_LANE))
    def not_for_a_lane(self, message: Message) -> None:
        self.refused(encode(message))

    @rule(seconds=st.sampled_from([0.001, 1.0, DEADLINE]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.endpoint.handle_timeout(self.now)
        self.after()

    @rule()
    def a_peer_leaves(self) -> None:
        self.session.fail_all(1, PeerLost("rank 1 on host1 is gone"))
        self.after()
        assert not self.running

    @invariant()
    def the_client_is_as_the_model_says(self) -> None:
        assert set(self.client.groups) == self.groups
        assert self.client.submitted == self.submitted

    @invariant()
    def every_operation_runs_or_has_ended_once(self) -> None:
        waiting = {wanted.receiver.ticket for wanted in self.session.mailbox.receivers}
        begun = {operation.ticket for operation in self.session.operations.values()}
        assert set(self.running) <= waiting | begun
        assert all(count == 1 for count in self.ended.values())
        assert not set(self.running) & set(self.ended)

    def teardown(self) -> None:
        self.socket.close()
        with pytest.raises(EOFError):
            self.lane.receive()
        self.session.end(PeerLost("the client ended"))
        self.after()
        assert not self.running and not self.session.operations
        self.endpoint.close_session(1)
        assert not self.endpoint.flows and self.endpoint.next_timeout() is None
        self.lane.close()


def _packed(message: Message) -> bytes:
    """Rows may be lists here, as they are on their way."""
    packed: bytes = encode(message)
    return packed


TestLane = LaneMachine.TestCase
TestLane.settings = settings(max_examples=150, stateful_step_count=40)
