"""The engine of a session, whose uses of memory a fake device sees; a kernel that looks."""

from collections.abc import Collection
from typing import Any

import torch

from dlcp_client import Session, Work
from dlcp_lab.device.fake import FakeDevice
from dlcpd.contract.frames import decode_untrusted
from dlcpd.contract.messages import Completed, Failed, Message, Submit
from tests.client.stand_in import StandIn

Lent = dict[int, Any]


def watched(session: Session, device: FakeDevice) -> None:
    """From its submission to its outcome an operation's memory is the engine's."""
    lent: Lent = {}
    lanes, table = session._connection.lanes, session._connection.table  # noqa: SLF001
    base = session._connection.arena._base  # noqa: SLF001
    send, handle = lanes.send, table.handle_locked

    def sending(packet: bytes, until: float, engines: Collection[int] = (0,)) -> None:
        message = decode_untrusted(packet)
        if isinstance(message, Submit):
            item = getattr(torch, message.dtype).itemsize
            for start, count in {
                (message.input, message.input_count),
                (message.output, message.output_count),
            }:
                where = (base + start, base + start + count * item)
                said = f"operation {message.operation} of {message.collective}"
                lent[message.operation] = device.lend(f"engine {session.rank}", where, said)
        send(packet, until, engines)

    def handling(message: Message, engine: int = 0) -> None:
        if isinstance(message, Completed | Failed) and message.operation in lent:
            device.returned(lent.pop(message.operation))
        handle(message, engine)

    lanes.send = sending  # type: ignore[method-assign]
    table.handle_locked = handling  # type: ignore[method-assign]


def reduce_all(world: StandIn, tensors: list[torch.Tensor], **more: Any) -> list[Work]:
    return [s.all_reduce(t, **more) for s, t in zip(world.sessions, tensors, strict=True)]


def seen(device: FakeDevice, tensor: torch.Tensor) -> torch.Tensor:
    """What a kernel of this thread's current stream finds in it."""
    found: list[torch.Tensor] = []
    device.launch(lambda: found.append(tensor.clone()), reads=[tensor]).wait()
    return found[0]
