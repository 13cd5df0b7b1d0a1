"""What one rank counts on its TCP connections while divided models train over Gloo."""

import os
import socket
import struct
from contextlib import suppress
from dataclasses import replace
from typing import Final

import torch

from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.module import Partitioned
from dlcp_client.spmd.program import Program
from dlcp_client.spmd.runtime import GroupRanks, device_mesh
from tests.spmd.models import convolutions
from tests.spmd.ranks import shard
from tests.spmd.trainings import SPACE, Case, case

STEPS: Final = 3
BYTES_SENT: Final = 200  # place of tcpi_bytes_sent in struct tcp_info, linux/tcp.h


def cases(size: int) -> dict[str, Case]:
    """Tensors so large that headers of messages are few bytes beside them."""
    gpt_of_more, experts, sharded = (
        case(name, size) for name in ("gpt", "experts", "gpt, sharded")
    )
    words = tuple(torch.randint(0, 50, (48, 8)) for _ in range(2))
    tokens = tuple(torch.randn(16 * size, 32, 16).double() for _ in range(2))
    model, _ = convolutions()
    image = torch.randn(4, 2, 500, 17).double(), torch.randint(0, 5, (4,))
    return {
        "gpt": replace(gpt_of_more, arguments=words),
        "gpt, sharded": sharded,
        "experts": replace(experts, arguments=tokens),
        "images": Case(model, image, Mesh({"space": size}), (SPACE, None)),
    }


def counted(rank: int, size: int) -> dict[str, tuple[float, float]]:
    """By model: bytes that this rank sent per step, and bytes that the plan says at most."""
    found = {}
    for name, one in cases(size).items():
        made = one.plan()
        devices = device_mesh(one.mesh, "cpu")
        program = Program(made, GroupRanks(one.mesh, devices))
        parallel = Partitioned(program, one.model, devices)
        dims = one.inputs or [()] * len(one.arguments)
        given = [shard(x, of or (), one.mesh) for x, of in zip(one.arguments, dims, strict=True)]
        parallel(*given).backward()  # Gloo connects
        before = _sent()
        for _ in range(STEPS):
            parallel(*given).backward()
        # Gloo makes a reduce-scatter of an all-reduce, which sends twice as much.
        sent = sum(one.sent * (1 + (one.kind == "reduce_scatter")) for one in made.collectives)
        found[name] = (_sent() - before) / STEPS, sent
    return found


def _sent() -> int:
    """Bytes that the TCP connections of this process have sent, retransmitted ones included."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as one:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                found += struct.unpack_from("Q", info, BYTES_SENT)[0]
    return found
