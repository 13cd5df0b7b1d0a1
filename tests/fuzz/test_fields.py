"""One thing wrong with a valid message: a value or the documented error, and nothing changes."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from dlcp_lab.simulation.network import SimNetwork, as_received
from dlcp_lab.simulation.reference import draw
from dlcp_lab.simulation.state import frozen
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from tests.attack.mutator import FIELDS as HEADER
from tests.fuzz import fields, seeds
from tests.fuzz.fields import Case
from tests.fuzz.target import ACCEPTED, joined
from tests.fuzz.targets import TARGETS

READY: Final = {
    "window": (0, 4), "segment_size": (4, 2), "length": (6, 2), "tag": (8, 4), "outgoing": (12, 8),
    "incoming": (20, 8), "fingerprint": (28, 8), "checked": (36, 4), "digest": (40, 8),
    "text": (48, 1),
}  # fmt: skip
ROW: Final = {
    "path": (0, 1), "class": (1, 1), "marked": (2, 2), "largest": (4, 4), "received": (8, 4),
    "echo": (12, 4), "held": (16, 4), "arrived": (20, 4),
}  # fmt: skip
CREDIT: Final = {"rows": (0, 1), "window": (4, 4)} | {
    f"{name} of {row}": (8 + 24 * row + offset, size)
    for row in range(2)
    for name, (offset, size) in ROW.items()
}
PIECE: Final = {"number": (42, 4), "total": (46, 2), "offset": (48, 2)}  # after a frame's length
GREETING: Final = {"signature": (0, 1), "version": (10, 1), "mechanism": (12, 1), "flags": (64, 1)}
# After it HELLO, of 200 B, and INITIATE; or WELCOME, of 168 B, and READY.
CALLED: Final = GREETING | {
    "size": (65, 1),
    "hello": (66, 1),
    "padding": (80, 1),
    "key": (146, 1),
    "nonce": (178, 1),
    "box": (186, 1),
    "long size": (274, 1),
    "initiate": (275, 1),
    "cookie": (284, 1),
    "counter": (387, 1),
    "vouch": (420, 1),
}
CALLING: Final = GREETING | {
    "size": (65, 1),
    "welcome": (66, 1),
    "nonce": (74, 1),
    "box": (90, 1),
    "ready": (236, 1),
    "counter": (242, 1),
    "metadata": (260, 1),
}
LAYOUTS: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "header": HEADER, "ready": READY, "ready_carries": READY, "credit": CREDIT,
    "complete": {"first": (0, 2)},
    "digests": {"operation": (0, 4), "known": (4, 1), "digest": (8, 8)},
    "bitmap": {"segments": (0, 2), "bits": (2, 2)}, "probe": HEADER | {"number": (40, 4)},
    "end": {"path": (0, 1), "class": (1, 1), "number": (4, 4)},
    "permit": {"segments": (0, 2), "limit": (2, 2), "cost": (4, 1)},
    "probe_answer": HEADER | {"number": (40, 4), "received": (44, 2)}, "pieces": PIECE,
    "bundle": {"length": (40, 2), "version": (42, 1), "kind": (43, 1), "path": (45, 1)},
    "called": CALLED, "calling": CALLING,
    "cipher": {"name": (0, 1), "counter": (8, 8), "box": (16, 1)},
    "doctor_probe": {"magic": (0, 4), "kind": (4, 1), "tos": (5, 1), "reply": (6, 2),
                     "token": (8, 1), "serial": (24, 4)},
    "doctor_answer": {"magic": (0, 4), "kind": (4, 1), "tos": (5, 1), "size": (6, 2),
                      "token": (8, 1), "serial": (24, 4), "arrival": (28, 4), "wall": (32, 8)},
}  # fmt: skip
TREES: Final[dict[str, Callable[[bytes], Iterator[Case]]]] = {
    "ipc_frame": fields.in_msgpack, "peer_message": fields.in_msgpack, "store": fields.in_json,
    "signed": fields.in_signed, "public_keys": fields.in_toml, "identity": fields.in_toml,
    "config": fields.in_toml, "traffic_classes": fields.in_toml, "intent": fields.in_toml,
    "doctor_greeting": fields.in_json,
}  # fmt: skip


def cases(name: str, seed: bytes) -> Iterator[Case]:
    yield from fields.cuts(seed)
    yield from fields.extensions(seed)
    if name in LAYOUTS:
        yield from fields.numbers(seed, LAYOUTS[name])
    elif name in TREES:
        yield from TREES[name](seed)


# An intent takes milliseconds to read, and the first seed has every key.
MOST_SEEDS: Final = {"intent": 1}
STEPS: Final = {"intent": 5}
WHOLE: Final = {"peer_address", "body", "ledger", "ledger_record", "mask", "mask_paths"}
PARSERS: Final = sorted({*LAYOUTS, *TREES, *WHOLE})
STATEFUL: Final = {"datapath", "endpoint", "discovery", "lane"}


def test_every_target_is_corrupted_here_or_keeps_state() -> None:
    assert {*PARSERS, *STATEFUL} == set(TARGETS)


@pytest.mark.parametrize("name", PARSERS)
def test_one_wrong_field_is_a_value_or_the_one_error(name: str) -> None:
    target, outcomes = TARGETS[name], Counter[str]()
    for seed in target.seeds[: MOST_SEEDS.get(name)]:
        for what, data in list(cases(name, seed))[:: STEPS.get(name, 1)]:
            try:
                outcomes[target.outcome(data)] += 1
            except Exception as exc:
                raise AssertionError(f"{what}: {data[:200]!r}") from exc
    assert outcomes.total() > 5
    if target.error != ():
        assert outcomes.total() > outcomes[ACCEPTED]


# --- bounds, said once more and not by the parsers themselves ------------------------------------


@pytest.mark.parametrize(
    ("field", "most"),
    [("flags", 31), ("path", 15), ("operation", (1 << 32) - 1), ("stream", (1 << 16) - 1),
     ("transfer", (1 << 16) - 1), ("segment", 4095), ("round", 255), ("tag", 31),
     ("packet_number", (1 << 32) - 1), ("sent_at", (1 << 32) - 1), ("token", (1 << 64) - 1)],
)  # fmt: skip
def test_a_header_holds_up_to_the_bound_and_no_more(field: str, most: int) -> None:
    offset, size = HEADER[field]
    for value in (0, most):
        data = bytearray(seeds.HEADERS[0])
        data[offset : offset + size] = value.to_bytes(size, "little")
        assert getattr(Header.unpack_untrusted(bytes(data)), field) == value
    if most + 1 < 1 << 8 * size:
        data[offset : offset + size] = (most + 1).to_bytes(size, "little")
        assert TARGETS["header"].outcome(bytes(data)) == field


# --- a session in the middle of its work --------------------------------------------------------

STATELESS: Final = {"short", "version", "kind", "flags", "path", "segment", "tag", "token", "body"}
# A peer that says something wrong is alive all the same: when it was heard, and that it is owed a
# look at what may go out, is no state that a datagram could do harm with.
NOTES: Final = {"counters", "effort", "touched", "_handled"}
HEARD: Final = NOTES | {"heard_at", "unanswered", "suspected", "sign", "held"}


def at_work() -> SimNetwork:
    """Two ranks in an all-reduce that may lose some; what is under way is lost."""
    net = SimNetwork(2)
    net.submit_all(1, draw("float32", 2, 1000, 1), max_loss=0.1, name="n")
    net.run(until=1.2e-4)
    return net


def state(net: SimNetwork) -> Any:
    return frozen(net.endpoints[0], HEARD)


def refused_without_trace(net: SimNetwork, data: bytes, before: Any) -> str:
    """What rank 0, in the state `before`, counts a datagram as; "" where it takes it. Refused for
    what the datagram itself says, it changes nothing: so the next one meets the same endpoint."""
    endpoint = net.endpoints[0]
    counted = Counter(endpoint.counters)
    endpoint.receive(as_received([data], 0, net), net.now)
    fresh = endpoint.counters - counted
    if not fresh:
        return ""
    assert fresh.total() == 1
    [reason] = fresh
    if leaves_no_trace(reason, data):
        assert state(net) == before, reason
    return reason


def leaves_no_trace(reason: str, data: bytes) -> bool:
    return reason in STATELESS or (reason == "length" and data[1] != Kind.DATA)


SAID: Final = seeds.first_of_each_kind(seeds.datagrams())


@pytest.mark.parametrize("data", SAID, ids=lambda data: Kind(data[1]).name)
def test_what_is_refused_leaves_an_endpoint_as_it_was(data: bytes) -> None:
    corrupt = [*fields.numbers(data, HEADER), *fields.cuts(data), *fields.extensions(data)]
    body = {"ready": READY, "credit": CREDIT}.get(Kind(data[1]).name.lower(), {})
    places = {n: (HEADER_SIZE + at, size) for n, (at, size) in body.items()}
    corrupt += fields.numbers(data, {n: p for n, p in places.items() if sum(p) <= len(data)})
    net, reasons = at_work(), Counter[str]()
    before = first = state(net)
    for what, each in corrupt:
        try:
            reason = refused_without_trace(net, each, before)
        except Exception as exc:
            raise AssertionError(what) from exc
        reasons[reason] += 1
        if not reason:  # it may have changed something, as it should
            net, before = at_work(), first
        elif not leaves_no_trace(reason, each):
            before = state(net)
    assert {"version", "kind", "flags", "path", "segment", "tag", "token", "short"} <= set(reasons)


def test_a_change_of_state_would_be_seen() -> None:
    net = at_work()
    before = state(net)
    assert state(at_work()) == before
    net.sessions[0].flows[1].window += 1
    assert state(net) != before


@pytest.mark.parametrize("name", ["datapath", "endpoint", "discovery", "lane"])
def test_one_wrong_field_of_a_datagram_or_frame_raises_nothing(name: str) -> None:
    """Each by itself, after a valid one: whole machines, which check themselves."""
    frames = seeds.ipc_frames()[7:10] if name == "lane" else (seeds.HEADERS[0] + bytes(64),)
    frames += seeds.pieces(lambda *a: [seeds.PROBE, seeds.ANSWER]) if name == "discovery" else ()
    for frame in frames:
        wrong = fields.in_msgpack(frame) if name == "lane" else fields.numbers(frame, HEADER)
        every = 1 if name in ("discovery", "datapath") else 7
        for _, data in [*wrong, *fields.cuts(frame)][::every]:
            TARGETS[name].run(joined([frame[:60000], data[:60000]]))


def test_ready_fields_are_where_the_layout_says() -> None:
    """Else the corruption would miss them."""
    ready = Ready("t", *range(1, 9))._replace(segment_size=64)
    for name, (offset, size) in READY.items():
        if name not in ("text", "length"):
            found = int.from_bytes(ready.pack()[offset : offset + size], "little")
            assert found == getattr(ready, name)
