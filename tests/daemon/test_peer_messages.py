"""What peers send: it comes back as sent, or is one counted error."""

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from dlcpd.contract.limits import MAX_ENGINES, MAX_WORLD
from dlcpd.contract.messages import MAX_OPERATION
from dlcpd.daemon.peers.peer_messages import (
    MAX_ABORTED,
    MAX_PEER_FRAME,
    MAX_REASON,
    MAX_ROUTES,
    MAX_WHY,
    PEER_VERSION,
    Abort,
    AbortedRow,
    Goodbye,
    HostNews,
    HostRates,
    Leaving,
    LinkProbeAnswer,
    LinkProbeAsk,
    LinkRow,
    MalformedPeerMessage,
    NetworkRow,
    OtherVersion,
    PeerHello,
    PeerMessage,
    PlanAnswer,
    PlanAsk,
    PlanStep,
    ProbeStep,
    RouteRow,
    StreamRow,
    pack,
    unpack_peer_untrusted,
)
from dlcpd.io.commands import MAX_ABORT_TEXT, MAX_BEGUN, NO_PEER, Begun, UdpAddress
from dlcpd.schedules.network import MAX_COST, MAX_RAILS, MAX_RATE, Costs, HostCapacity

HELLO = PeerHello(
    job="job",
    from_rank=0,
    to_rank=1,
    session=5,
    echo=0,
    answer=True,
    serving=True,
    host="h",
    proof="p",
    token=6,
    secret=32 * "a",
    seed=7,
    endpoints=[UdpAddress("10.0.0.1", 40000), UdpAddress("fd00::1", 40001)],
    world_size=2,
    engines=2,
    chunk_bytes=64000,
    digest_every=16,
    checksum=1,
    data_encryption=0,
    capacity=[HostCapacity((10**10,), (10**10,), "left", 10**9, 10**9)],
    round_trip=250,
    costs=Costs(27_000, 800, 80_000, 100_000),
    newest=PEER_VERSION,
)
GOODBYE = Goodbye("job", 0, 1, 5, 6, "peer_lost", "why")
ABORT = Abort("job", 0, 1, 5, 6, 1, [AbortedRow(4, 7, "why", -1)])
LEAVING = Leaving("job", 0, 1, 5, 6, 1, "why", [Begun(0, 7)], last=True)
CAPACITY = HostCapacity((10**10,), (10**9,), "left", 10**9, 10**9)
NEWS = HostNews("job", 1, 0, 5, 6, 3, [CAPACITY])
ASK = PlanAsk(
    "job", 0, 1, 5, 6, 2, PlanStep.OFFER, [NetworkRow.of("h", CAPACITY)], bytes(16), [], 0
)
ANSWER = PlanAnswer("job", 1, 0, 5, 6, 2, PlanStep.PROMISE, [StreamRow(1, 2, 3)], "why")
RATES = HostRates("job", 1, 0, 5, 6, LinkRow(10**9, 10**9, 97), LinkRow(10**8, 0, 0))
PROBE = LinkProbeAsk("job", 0, 1, 5, 6, 3, ProbeStep.ROUND, 2, 1 << 20, NO_PEER, 0, idle=True)
PROBED = LinkProbeAnswer(
    "job", 1, 0, 5, 6, 3, ProbeStep.BEGIN, 0, [RouteRow(2, 3, "10.0.0.1")], "", ""
)
ALL: list[PeerMessage] = [
    HELLO, GOODBYE, ABORT, LEAVING, NEWS, ASK, ANSWER, RATES, PROBE, PROBED,
]  # fmt: skip


def frame_of(message: PeerMessage, **changes: Any) -> bytes:
    number = ALL.index(next(m for m in ALL if type(m) is type(message)))
    packed: bytes = msgpack.packb([PEER_VERSION, number, {**asdict(message), **changes}])
    return packed


@pytest.mark.parametrize("message", ALL, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_as_sent(message: PeerMessage) -> None:
    assert unpack_peer_untrusted(pack(message)) == message
    assert frame_of(message) == pack(message)


def test_what_a_peer_says_has_no_control_characters() -> None:
    said = "\x1b]0;owned\x07\n\x9b\u202e"
    hello = unpack_peer_untrusted(frame_of(HELLO, host=said))
    rack = unpack_peer_untrusted(frame_of(HELLO, capacity=[[[1], [1], said, 1, 1]]))
    goodbye = unpack_peer_untrusted(frame_of(GOODBYE, text=said, code=said))
    abort = unpack_peer_untrusted(frame_of(ABORT, aborted=[[4, 7, said, -1]]))
    ask = unpack_peer_untrusted(frame_of(ASK, network=[[said, [1], [1], said, 1, 1]]))
    answer = unpack_peer_untrusted(frame_of(ANSWER, why=said))
    shown = r"\x1b]0;owned\x07" + "\n" + r"\x9b\u202e"
    assert isinstance(hello, PeerHello) and hello.host == shown
    assert isinstance(rack, PeerHello) and rack.capacity[0].rack == shown
    assert isinstance(ask, PlanAsk) and ask.network[0].host == ask.network[0].rack == shown
    assert isinstance(answer, PlanAnswer) and answer.why == shown
    assert isinstance(goodbye, Goodbye) and goodbye.text == goodbye.code == shown
    probed = unpack_peer_untrusted(frame_of(PROBED, beside=said, routes=[[2, 3, said]]))
    assert isinstance(probed, LinkProbeAnswer)
    assert probed.beside == probed.routes[0].first == shown
    assert isinstance(abort, Abort) and abort.aborted == [AbortedRow(4, 7, shown, -1)]


def test_the_largest_messages_fit_a_frame() -> None:
    wide = "\U0001f600"  # four bytes of UTF-8
    rails = (MAX_RATE,) * MAX_RAILS
    hello = replace(
        HELLO,
        job=wide * 128,
        host=wide * 255,
        endpoints=[UdpAddress("f" * 39, 65535)] * 128,
        capacity=[HostCapacity(rails, rails, wide * 255, MAX_RATE, MAX_RATE)],
    )
    goodbye = replace(GOODBYE, job=wide * 128, text=wide * MAX_REASON)
    rows = [AbortedRow((1 << 16) - 1, MAX_OPERATION, wide * MAX_ABORT_TEXT, -1)] * MAX_ABORTED
    abort = replace(ABORT, job=wide * 128, aborted=rows)
    most = [StreamRow(MAX_ENGINES - 1, (1 << 16) - 1, MAX_OPERATION)] * MAX_BEGUN
    ask = replace(ASK, job=wide * 128, network=[], firsts=most, rest=MAX_OPERATION)
    answer = replace(ANSWER, job=wide * 128, limits=most, why=wide * MAX_WHY)
    routes = [RouteRow(MAX_WORLD - 1, 255, "f" * 64)] * MAX_ROUTES
    probed = replace(PROBED, job=wide * 128, routes=routes, beside=wide * 128, why=wide * MAX_WHY)
    for message in (hello, goodbye, abort, ask, answer, probed):
        assert len(pack(message)) <= MAX_PEER_FRAME


WRONG: list[Any] = [None, True, -1, 1.5, 1 << 64, "x" * 5000, b"x", [], [[1, 2]], {}, [[]]]
GOOD: dict[str, list[Any]] = {  # of these, for some fields
    **{name: [[]] for name in ("capacity", "network", "firsts", "limits", "routes")},
    "begun": [[], [[1, 2]]],
    "digest": [b"x"],
    **{name: [-1] for name in ("target", "source")},
}
FIELDS = [(m, name) for m in ALL for name in m.__struct_fields__]


@pytest.mark.parametrize(("message", "name"), FIELDS, ids=lambda v: str(v)[:20])
def test_one_wrong_field_is_enough(message: PeerMessage, name: str) -> None:
    rejected = 0
    for value in WRONG:
        if type(value) is type(getattr(message, name)) and value is True:
            continue  # a good value of `answer` and `last`
        if value in GOOD.get(name, []):
            continue
        with pytest.raises(MalformedPeerMessage) as caught:
            unpack_peer_untrusted(msgpack_or_skip(message, name, value))
        rejected += caught.value.reason in ("bad_field", "no_msgpack")
    assert rejected >= len(WRONG) - 2


def msgpack_or_skip(message: PeerMessage, name: str, value: Any) -> bytes:
    """Integers that msgpack cannot hold become another wrong value."""
    try:
        return frame_of(message, **{name: value})
    except OverflowError:
        return frame_of(message, **{name: None})


@pytest.mark.parametrize("place", range(len(Costs._fields)))
def test_a_host_cannot_claim_any_cost(place: int) -> None:
    claims = [[MAX_COST if at == place else 0 for at in range(4)] for _ in range(2)]
    claims[1][place] += 1
    hello = unpack_peer_untrusted(frame_of(HELLO, costs=claims[0]))
    assert isinstance(hello, PeerHello) and hello.costs[place] == MAX_COST
    with pytest.raises(MalformedPeerMessage, match="bad_field"):
        unpack_peer_untrusted(frame_of(HELLO, costs=claims[1]))


@pytest.mark.parametrize(
    "endpoints",
    [
        [],
        [["10.0.0.1", 0]],
        [["10.0.0.1", 65536]],
        [["localhost", 5]],
        [["0.0.0.0", 5]],
        [["::", 5]],
        [["224.0.0.1", 5]],
        [["fe80::1%eth0", 5]],
        [["10.0.0.1"]],
        [[5, "10.0.0.1"]],
        [["10.0.0.1", 5]] * 17,
    ],
    ids=str,
)
def test_the_engine_is_given_no_address_it_cannot_send_to(endpoints: list[Any]) -> None:
    with pytest.raises(MalformedPeerMessage):
        unpack_peer_untrusted(frame_of(HELLO, endpoints=endpoints))


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("session", 1, (1 << 63) - 1), ("token", 1, (1 << 64) - 1), ("from_rank", 0, 255)],
)
def test_bounds_are_inclusive(name: str, low: int, high: int) -> None:
    for good in (low, high):
        assert getattr(unpack_peer_untrusted(frame_of(HELLO, **{name: good})), name) == good
    for bad in {low - 1, high + 1} - {1 << 64}:
        with pytest.raises(MalformedPeerMessage):
            unpack_peer_untrusted(frame_of(HELLO, **{name: bad}))


def test_an_abort_names_any_operation_of_any_stream_of_the_wire() -> None:
    streams, numbers, text = 1 << 16, MAX_OPERATION, "x" * MAX_ABORT_TEXT
    for good in (AbortedRow(0, 1, "", -1), AbortedRow(streams - 1, numbers, text, MAX_WORLD - 1)):
        abort = unpack_peer_untrusted(frame_of(ABORT, aborted=[good]))
        assert abort == replace(ABORT, aborted=[good])
    outside = [(-1, 1), (streams, 1), (0, 0), (0, numbers + 1)]
    bad_rows = [[stream, number, "", -1] for stream, number in outside]
    bad_rows += [[0, 1, text * 2, -1], [0, 1, "", -2], [0, 1, "", MAX_WORLD], [0, 1, ""]]
    for bad in bad_rows:
        with pytest.raises(MalformedPeerMessage, match="aborted"):
            unpack_peer_untrusted(frame_of(ABORT, aborted=[[0, 1, "", -1], bad]))


def test_missing_and_additional_fields_are_refused() -> None:
    values = asdict(GOODBYE)
    missing = {name: value for name, value in values.items() if name != "echo"}
    wrongs: list[Any] = [missing, values | {"more": 1}, [], None]
    for wrong in wrongs:
        with pytest.raises(MalformedPeerMessage, match="bad_field"):
            unpack_peer_untrusted(msgpack.packb([PEER_VERSION, 1, wrong]))


def test_another_version_is_told_apart_whatever_its_fields_are() -> None:
    with pytest.raises(OtherVersion) as caught:
        unpack_peer_untrusted(msgpack.packb([PEER_VERSION + 1, "hello", None]))
    assert caught.value.version == PEER_VERSION + 1


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "no_msgpack"),
        (b"\xc1", "no_msgpack"),
        (b"\xdd\xff\xff\xff\xff", "no_frame"),
        (b"\xa2\xff\xff", "no_frame"),
        (b"\x00\x00", "no_frame"),
        (pack(HELLO) + b"\0", "no_msgpack"),
        (pack(HELLO)[:-1], "no_msgpack"),
        (b"\xc0", "no_frame"),
        (msgpack.packb([PEER_VERSION, 0]), "no_frame"),
        (msgpack.packb(["1", 0, {}]), "no_frame"),
        (msgpack.packb([True, 0, {}]), "no_frame"),
        (msgpack.packb([-1, 0, {}]), "no_frame"),
        (msgpack.packb([PEER_VERSION, len(ALL), {}]), "unknown_kind"),
        (msgpack.packb([PEER_VERSION, -1, {}]), "unknown_kind"),
        (msgpack.packb([PEER_VERSION, False, {}]), "unknown_kind"),
        (bytes([0x93, PEER_VERSION]) + b"\x91" * 30_000 + b"\xc0\x80", "no_msgpack"),
        (b"\xc4" * (MAX_PEER_FRAME + 1), "too_long"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_each_kind_of_rubbish_has_its_counter(frame: bytes, reason: str) -> None:
    with pytest.raises(MalformedPeerMessage) as caught:
        unpack_peer_untrusted(frame)
    assert caught.value.reason == reason


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_raise_only_the_one_error(data: bytes) -> None:
    with pytest.raises(MalformedPeerMessage):
        unpack_peer_untrusted(data)


@given(st.integers(0, len(pack(HELLO)) - 1), st.integers(1, 255))
@settings(max_examples=1000)
def test_a_corrupted_hello_is_refused_or_still_a_message(position: int, mask: int) -> None:
    data = bytearray(pack(HELLO))
    data[position] ^= mask
    try:
        message = unpack_peer_untrusted(bytes(data))
    except MalformedPeerMessage:
        return
    assert unpack_peer_untrusted(pack(message)) == message
