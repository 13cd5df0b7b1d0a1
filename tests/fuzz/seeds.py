"""Valid inputs: one of everything that this project reads from others."""

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from torch.distributed import HashStore  # type: ignore[attr-defined]

from dlcp_client.job.rendezvous import Meeting, Member
from dlcp_client.job.secret import JobSecret
from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw
from dlcpd.contract.frames import FORMS
from dlcpd.contract.messages import ByteRange, CloseGroup, LayerRow, Message, OpenGroup, Submit
from dlcpd.core.wire.control import Ready, SpaceCredit
from dlcpd.core.wire.header import Flag, Header, Key, Kind
from dlcpd.core.wire.probes import pack_answer, pack_probe
from dlcpd.daemon.peers.key_files import Identity
from dlcpd.daemon.peers.keys import KeyPair
from dlcpd.daemon.peers.peer_messages import (
    Abort,
    AbortedRow,
    Goodbye,
    HostNews,
    HostRates,
    Leaving,
    LinkProbeAnswer,
    LinkProbeAsk,
    LinkRow,
    NetworkRow,
    PeerHello,
    PeerMessage,
    PlanAnswer,
    PlanAsk,
    PlanStep,
    ProbeStep,
    RouteRow,
    StreamRow,
)
from dlcpd.doctor.datagrams import Probe, ProbeAnswer
from dlcpd.doctor.greeting import End, Greeting
from dlcpd.io.commands import Begun, UdpAddress
from dlcpd.schedules.network import HostCapacity
from tests.contract.frames import example, good_values, packet, rules

TOKEN: Final = 7


def _submit(number: int, **changes: Any) -> Submit:
    fields: dict[str, Any] = {
        "group": 0,
        "collective": "all_reduce",
        "schedule": "",
        "peer": -1,
        "tag": 0,
        "input": 0,
        "input_count": 1000,
        "output": 0,
        "output_count": 1000,
        "sizes": [],
        "dtype": "float32",
        "reduce": "sum",
        "max_loss": 0.0,
        "fill": "residual",
        "traffic_class": 1,
        "deadline": 9.0,
        "in_place": True,
        "name": "",
        "exempt": [],
        "layers": [],
    }
    return Submit(number, **(fields | changes))


VECTORS: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "header.json").read_text()
)
HEADERS: Final = tuple(
    Header(kind, TOKEN, 3, 1, 2, 4, 1, 18, Flag.ASK, 2, 9, 77).pack() for kind in Kind
)
READY: Final = Ready(
    "all_reduce sum of float32[500]", 99, 1408, 5, 2000, 2000, 1 << 20, 2, 1234
).pack()
READY_CARRIES: Final = Ready("sum of u8[9]", 9, 1408, 0, 9, 9, carried=bytes(range(9))).pack()
CREDIT_ROWS: Final = [SpaceCredit(0, 1, 2, 30, 31, 32, 33, 34), SpaceCredit(15, 7, *[0] * 6)]
PROBE: Final = pack_probe(TOKEN, 1, 5, 100)
ANSWER: Final = pack_answer(TOKEN, 1, 5, 100)
DOCTOR_PROBE: Final = Probe(bytes(16), 7, 0xB8, 100, 90).pack()
DOCTOR_ANSWER: Final = ProbeAnswer(bytes(16), 7, 0xB8, 100, 3, 1_700_000_000_000_000).pack(90)
DOCTOR_GREETING: Final = Greeting(
    "0.1.0",
    "beta",
    bytes(16),
    {"chunk_bytes": 4 << 20},
    End(-1, "10.0.0.2", 7000, held=False),
    (End(0, "10.0.0.2", 7001, held=True),),
).pack()
PEER_MESSAGES: Final[tuple[PeerMessage, ...]] = (
    PeerHello(
        job="job", from_rank=0, to_rank=1, session=5, echo=0, answer=True, serving=True, host="h",
        proof="p", token=6, secret="5e" * 16, seed=7,
        endpoints=[UdpAddress("10.0.0.1", 40000), UdpAddress("fd00::1", 40001)],
        engines=2, world_size=2, chunk_bytes=64000, digest_every=16, checksum=1, data_encryption=0,
        round_trip=250,
    ),
    Goodbye("job", 0, 1, 5, 6, "peer_lost", "why"),
    Abort("job", 0, 1, 5, 6, 1, [AbortedRow(4, 7, "why", -1), AbortedRow(0, 1, "", -1)]),
    Leaving("job", 0, 1, 5, 6, 1, "its client ended", [Begun(0, 7), Begun(16386, 1)], last=True),
    HostNews("job", 1, 0, 5, 6, 3, [HostCapacity((10**10,), (10**9,))]),
    PlanAsk("job", 0, 1, 5, 6, 2, PlanStep.OFFER, [NetworkRow("h", (9,), (8,), "r", 7, 6)],
            bytes(16), [StreamRow(0, 1, 40)], 17),
    PlanAnswer("job", 1, 0, 5, 6, 2, PlanStep.PROMISE, [StreamRow(0, 1, 40)], "why"),
    HostRates("job", 1, 0, 5, 6, LinkRow(10**9, 10**9, 97), LinkRow(10**8, 0, 0)),
    LinkProbeAsk("job", 0, 1, 5, 6, 3, ProbeStep.ROUND, 2, 1 << 20, -1, 0, idle=True),
    LinkProbeAnswer("job", 1, 0, 5, 6, 3, ProbeStep.BEGIN, 9, [RouteRow(2, 3, "10.0.0.1")], "",
                    "why"),
)  # fmt: skip
IDENTITY: Final = Identity("node-7", KeyPair.of_secret(bytes(range(32))))
PEER_ADDRESS: Final = "tcp://10.0.0.1:7700\n" + "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
CONFIG: Final = """\
[daemon]
host = "node 7"
socket = "/run/dlcpd/other.sock"
control_address = "10.0.0.7"
control_port = 7000
socket_group = "trainers"
allowed_users = ["alice", 1001]
max_sessions = 3
max_arena_bytes = 1048576
drain_timeout = 5
log_level = "debug"
log_format = "json"
[network]
paths = [{ address = "10.0.0.7", port = 7001 }, { address = "fd00::7" }]
entropy = 4
engines = 2
engine_cpus = ["0-2,5", "3"]
segment_size = 8832
chunk_bytes = 140800
receive_buffer = 1048576
window = 2097152
data_path = "numpy"
offload = false
rate_limit_bps = 1e9
congestion_control = false
layer_priority = false
drop_precedence = "ecn"
bounded_loss = false
alarm_loss = 0.25
peer_timeout = 2.5
[checks]
digest_every = 1
[inject]
loss = 0.05
seed = 9
"""
INTRODUCTION: Final = {
    "job": "j-1", "peer": ["host-a", *PEER_ADDRESS.split("\n")], "machine": "m",
    "socket_path": "@d", "problem": "", "fallback": True, "transport": "dlcp",
}  # fmt: skip
LANE: Final[tuple[Message, ...]] = (
    OpenGroup(1, "pair", [1, 0]),
    _submit(1),
    _submit(2, group=1, collective="broadcast", peer=1),
    _submit(3, collective="send", peer=1, output_count=0, tag=4),
    _submit(4, collective="receive", input_count=0, tag=4),
    _submit(5, max_loss=0.01, name="w", exempt=[ByteRange(0, 8)], layers=[LayerRow(0, 3, 0)]),
    CloseGroup(1),
)


def introduction() -> bytes:
    """What a rank tells the others through the store."""
    return json.dumps(INTRODUCTION).encode()


def member(store: Any) -> Member:
    """The one rank of a job with a secret."""
    return Member(store, 0, 1, JobSecret(b"0123456789abcdef" * 2, "seeds"), "launch")


def signed_introduction() -> bytes:
    """The same, signed."""
    store: Any = HashStore()
    Meeting(member(store), "fuzz").publish(INTRODUCTION)
    return bytes(store.get("dlcp/fuzz/1/0"))


def traffic_classes() -> bytes:
    """The table that ships."""
    return files("dlcpd.contract").joinpath("traffic_classes.toml").read_bytes()


def ipc_frames() -> tuple[bytes, ...]:
    """Each message of docs/ipc.md, its fields at their limits and its lists short."""
    frames = []
    for number, kind in enumerate(FORMS):
        frames.append(packet(number, (example(kind) | short_lists(kind)).values()))
    return tuple(frames)


def short_lists(kind: Any) -> dict[str, Any]:
    """The fields of a message that are lists, with one row each."""
    return {
        name: good_values(rule)[1] for name, rule in rules(kind).items() if rule["type"] is list
    }


@cache
def datagrams() -> tuple[bytes, ...]:
    """What rank 0 gets in an all-reduce that loses some, one of each kind at least."""
    net = SimNetwork(2, SimLink(loss=0.1), seed=3, recorded=[])
    net.submit_all(1, draw("float32", 2, 1000, 1), max_loss=0.1, name="n")
    net.run()
    return tuple(each.data for each in net.recorded or () if each.target == 0)


def first_of_each_kind(data: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """One datagram of each kind, in the order of arrival."""
    return tuple({each[1]: each for each in reversed(data)}.values())[::-1]


def pieces(cut: Callable[[bytes, int, int], Any]) -> tuple[bytes, ...]:
    """Of one datagram."""
    whole = Header(Kind.DATA, TOKEN, *Key(0, 1, 0)[1:]).pack() + bytes(1000)
    return tuple(cut(whole, 9, 600))
