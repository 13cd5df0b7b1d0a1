"""The lane to the engine, at its end."""

import socket
import time
from typing import Any

import pytest

from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.numpy.arrays import ARRAYS
from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.open_operations import GRACE, Operations
from dlcpd.contract.errors import PeerLost
from dlcpd.contract.frames import encode
from dlcpd.contract.messages import Failed, Released
from tests.client.stand_in import completed, nothing


def test_a_lane_that_ends_between_two_reads_of_a_frame_is_an_end() -> None:
    control, far_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    table: Any = Operations(lambda _work: None)
    lanes = Lanes([near], ControlConnection(control, lambda: "killed by the test"), table)
    near.send(b"what the engine never reads")  # so that its end resets the connection
    far.send(encode(Released(1)))
    calls: list[int] = []

    def done() -> bool:
        calls.append(1)
        if len(calls) == 2:  # after a look at the frame, before it is taken
            far.close()
        return table.error is not None

    assert lanes.wait_until(done, time.monotonic() + 5)
    assert "killed by the test" in str(table.error)
    lanes.close()
    far_control.close()


def test_a_peer_that_one_engine_lost_takes_no_result_of_another_engine() -> None:
    """A rank leaves when all its results are delivered; engines say both, in any order."""
    control, far_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    table: Any = Operations(lambda _work: None)
    table.library = ARRAYS  # as the session that works wait with
    connection = ControlConnection(control, lambda: "killed by the test")
    lanes = Lanes([near for near, _ in ends], connection, table)
    works = [nothing(table) for _ in range(4)]
    for work, engines in zip(works, [(0,), (1,), (0, 1), (1,)], strict=True):
        table.begin(work, (), engines)
    ends[0][1].send(encode(Failed(0, "peer_lost", "rank 1 left")))
    lanes.pump()
    assert [work.ended for work in works] == [True, False, True, False]
    with pytest.raises(PeerLost, match="rank 1 left"):
        table.begin(nothing(table), (), (1,))
    ends[1][1].send(encode(completed(2)))
    lanes.pump()
    assert works[1].stats is not None and not works[3].ended
    table.end_late(time.monotonic() + GRACE)
    with pytest.raises(PeerLost, match="rank 1 left"):
        works[3].wait()
    lanes.close()
    for sock in (far_control, *(far for _, far in ends)):
        sock.close()
