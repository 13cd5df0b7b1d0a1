"""What is worked out of answers, and what is made of bytes of strangers; no network."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from dlcpd.contract.errors import BadMessage
from dlcpd.doctor import questions
from dlcpd.doctor.datagrams import LEAST, Probe, ProbeAnswer, answer_untrusted, probe_untrusted
from dlcpd.doctor.greeting import End, Greeting

TOKEN = bytes(range(16))


@pytest.mark.parametrize("limit", [1280, 1281, 1295, 1400, 1460, 1500, 4352, 8999, 9000])
def test_the_largest_size_is_found_in_few_rounds(limit: int) -> None:
    rounds = list[int]()

    def passes(sizes: Sequence[int]) -> set[int]:
        rounds.append(len(sizes))
        return {size for size in sizes if size <= limit}

    assert questions.largest(passes, 1280, 9000) == limit
    assert len(rounds) <= 6 and max(rounds) <= questions.AT_ONCE


def test_nothing_passes() -> None:
    assert questions.largest(lambda _: set(), 1280, 9000) == 0


@pytest.mark.parametrize(
    ("arrivals", "count"), [([], 0), ([1, 2, 5], 0), ([2, 1, 3], 1), ([3, 1, 2, 4], 2)]
)
def test_overtaken(arrivals: list[int], count: int) -> None:
    assert questions.overtaken(arrivals) == count


@pytest.mark.parametrize(
    ("routes", "count"),
    [
        ([("l", "s0"), ("l", "s1"), ("l", "s0")], 2),
        ([("l", "?"), ("l", "s1"), ("?", "s1")], 1),
        ([("l",), ("l", "s1")], 2),
        ([], 0),
    ],
)
def test_a_silent_router_adds_no_way(routes: list[tuple[str, ...]], count: int) -> None:
    assert len(questions.ways(routes)) == count


def test_probes_and_answers_survive_the_wire() -> None:
    probe = Probe(TOKEN, 7, 0x2E, 1200, 900)
    data = probe.pack()
    assert len(data) == 1200 and probe_untrusted(data) == probe
    assert answer_untrusted(data) is None
    answer = ProbeAnswer(TOKEN, 7, 0x2E, 1200, 3, 1_700_000_000_000_000)
    assert answer_untrusted(answer.pack(0)) == answer
    assert probe_untrusted(answer.pack(LEAST)) is None
    assert len(answer.pack(0)) <= LEAST, "no answer is longer than its probe"


def test_an_answer_is_never_longer_than_its_probe() -> None:
    greedy = probe_untrusted(Probe(TOKEN, 1, size=LEAST, reply_size=9000).pack())
    assert greedy is not None and greedy.reply_size == LEAST


@pytest.mark.parametrize("data", [b"", b"DLDR", bytes(LEAST), b"DLDR\x03" + bytes(LEAST)])
def test_junk_is_neither(data: bytes) -> None:
    assert probe_untrusted(data) is None
    assert answer_untrusted(data) is None


GREETING = Greeting(
    "0.1.0",
    "beta",
    TOKEN,
    {"chunk_bytes": 4 << 20},
    End(-1, "10.0.0.2", 7000, held=False),
    (End(0, "10.0.0.2", 7001, held=True),),
)


def test_a_greeting_survives_the_wire() -> None:
    line = GREETING.pack()
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert Greeting.unpack_untrusted(line) == GREETING


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1}, {"host": "x" * 256}, {"token": "zz"}, {"token": "00"}, {"agreed": []},
        {"agreed": {"chunk_bytes": "x"}}, {"agreed": {"chunk_bytes": float("inf")}},
        {"control": None}, {"data": {}}, {"data": [1]},
        {"data": [{"path": 0, "address": "10.0.0.2", "port": 70000, "held": False}]},
        {"data": [{"path": 0, "address": "example.com", "port": 7, "held": False}]},
        {"data": [{"path": 0, "address": 5, "port": 7, "held": False}]},
    ],
    ids=str,
)  # fmt: skip
def test_a_greeting_of_a_stranger_is_refused(change: dict[str, Any]) -> None:
    values = json.loads(GREETING.pack()) | change
    with pytest.raises(BadMessage):
        Greeting.unpack_untrusted(json.dumps(values).encode())


@pytest.mark.parametrize("line", [b"", b"SSH-2.0\r\n", b"[]", b"[" * 100_000, b"\xff\xfe"])
def test_another_program_is_refused(line: bytes) -> None:
    with pytest.raises(BadMessage):
        Greeting.unpack_untrusted(line)
