"""The lane to the engine, at its end."""

import socket
import time
from typing import Any

from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.ipc.lanes import Lanes
from dlcp_client.operations.open_operations import Operations
from dlcpd.contract.messages import Released
from dlcpd.ipc.seqpacket import encode


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
