"""Pieces of any size make the same frames, and nothing too long is stored."""

import pytest

from dlcpd.daemon.peers.frames import (
    GREETING_BYTES,
    MAX_HANDSHAKE_FRAME,
    BrokenStream,
    FrameReader,
    check_greeting_untrusted,
    frame,
    greeting,
)

GREETING = greeting(as_server=False)


def read(data: bytes, step: int, reader: FrameReader | None = None) -> list[bytes]:
    """What a reader makes of `data`, fed at most `step` bytes at a time."""
    reader, found = reader or FrameReader(), []
    while data:
        take = min(step, reader.wanted)
        assert take > 0
        whole = reader.feed(data[:take])
        data = data[take:]
        if whole is not None:
            found.append(whole)
    return found


def greeted() -> FrameReader:
    reader = FrameReader()
    read(GREETING, 64, reader)
    return reader


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_frames_come_out_whole_whatever_the_pieces(step: int) -> None:
    bodies = [b"x", b"y" * 255, b"z" * 256, b"w" * MAX_HANDSHAKE_FRAME]
    stream = GREETING + b"".join(frame(body, command=i % 2 == 0) for i, body in enumerate(bodies))
    assert read(stream, step) == [GREETING, *bodies]


@pytest.mark.parametrize(
    "header",
    [
        b"\x01\x01", b"\x08\x01",  # flags: MORE, and one that is reserved
        b"\x00\x00", frame(b"x" * (MAX_HANDSHAKE_FRAME + 1))[:9], b"\x02" + b"\xff" * 8,
    ],
    ids=["more", "reserved", "empty", "long", "endless"],
)  # fmt: skip
def test_a_header_that_breaks_a_rule_is_refused_before_its_body(header: bytes) -> None:
    with pytest.raises(BrokenStream):
        read(header, 1, greeted())


def test_the_limit_is_that_of_the_moment() -> None:
    reader = greeted()
    reader.limit = 1000
    assert read(frame(b"x" * 1000), 64, reader) == [b"x" * 1000]


@pytest.mark.parametrize("at", [0, 9, 10, 12, 20])
def test_another_greeting_is_refused(at: int) -> None:
    check_greeting_untrusted(GREETING)
    broken = bytearray(GREETING)
    broken[at] ^= 0x01 if at != 10 else 0x02
    assert len(broken) == GREETING_BYTES
    with pytest.raises(BrokenStream):
        check_greeting_untrusted(bytes(broken))
