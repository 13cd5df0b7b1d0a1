"""IPC frames: what goes out comes back; whatever else comes in is a BadMessage, nothing more."""

import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.frames import FORMS, decode_untrusted, encode
from dlcpd.contract.inquiries import Status, Traced
from dlcpd.contract.limits import MAX_WORLD
from dlcpd.contract.messages import (
    MAX_EXEMPT,
    MAX_FRAME,
    MAX_TEXT,
    VERSION,
    Failed,
    Join,
    Leave,
    Message,
    Submit,
)
from dlcpd.contract.printable import harmless
from tests.contract.frames import bad_values, example, good_values, messages, packet, rules

KINDS: list[type[Message]] = list(FORMS)

EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)

GOOD = [
    pytest.param(kind, name, value, id=f"{kind.__name__}.{name}-{index}")
    for kind in KINDS
    for name, rule in rules(kind).items()
    for index, value in enumerate(good_values(rule))
]
BAD = [
    pytest.param(kind, name, value, id=f"{kind.__name__}.{name} {corruption}")
    for kind in KINDS
    for name, rule in rules(kind).items()
    for corruption, value in bad_values(rule)
]


@given(messages())
def test_a_message_comes_back_from_its_packet(message: Message) -> None:
    assert decode_untrusted(encode(message)) == message


@pytest.mark.parametrize(("kind", "name", "value"), GOOD)
def test_a_field_may_reach_its_limits(kind: type[Message], name: str, value: Any) -> None:
    frame = packet(KINDS.index(kind), (example(kind) | {name: value}).values())
    if isinstance(value, list):
        value = [tuple(row) if isinstance(row, list) else row for row in value]
    assert getattr(decode_untrusted(frame), name) == value


@pytest.mark.parametrize(("kind", "name", "value"), BAD)
def test_one_bad_field_is_enough(kind: type[Message], name: str, value: Any) -> None:
    frame = packet(KINDS.index(kind), (example(kind) | {name: value}).values())
    with pytest.raises(BadMessage, match=rf"^{kind.__name__}\.{name}: .") as caught:
        decode_untrusted(frame)
    assert len(str(caught.value)) < MAX_TEXT


HOSTILE = "\x1b]0;owned\x07\n\x9b31m\x7f\u202e"
SHOWN = r"\x1b]0;owned\x07" + "\n" + r"\x9b31m\x7f\u202e"


@EACH_KIND
def test_no_text_of_a_message_has_control_characters(kind: type[Message]) -> None:
    hostile: dict[str, Any] = {}
    for name, rule in rules(kind).items():
        if rule["type"] is str and "choices" not in rule:
            hostile[name] = HOSTILE
        elif rule.get("of", int) is not int:
            [row, *_] = example(kind)[name]
            hostile[name] = [[HOSTILE if isinstance(cell, str) else cell for cell in row]]
    message = decode_untrusted(packet(KINDS.index(kind), (example(kind) | hostile).values()))
    for name, value in hostile.items():
        for text in [value] if isinstance(value, str) else getattr(message, name)[0]:
            if isinstance(text, str):
                limit = rules(kind)[name]["high"] if isinstance(value, str) else MAX_TEXT
                shown = getattr(message, name) if isinstance(value, str) else text
                assert shown == SHOWN[:limit]


@EACH_KIND
def test_a_missing_value_is_refused_unless_it_is_at_the_end_and_has_a_default(
    kind: type[Message],
) -> None:
    values, defaults = list(example(kind).values()), kind.__struct_defaults__
    required = len(values) - len(defaults)
    for count in range(len(values)):
        frame = packet(KINDS.index(kind), values[:count])
        if count < required:
            with pytest.raises(BadMessage, match=f"{kind.__name__}: needs exactly"):
                decode_untrusted(frame)
        else:
            found = [getattr(decode_untrusted(frame), name) for name in rules(kind)]
            assert found[count:] == [*defaults[count - required :]]
    for gone in range(required):  # without a later one it is a shorter message, if types agree
        with pytest.raises(BadMessage):
            decode_untrusted(packet(KINDS.index(kind), [*values[:gone], *values[gone + 1 :]]))


@EACH_KIND
@pytest.mark.parametrize("extra", ["", "colour", 1, b"rank", None, []], ids=repr)
def test_an_extra_field_is_refused(kind: type[Message], extra: Any) -> None:
    with pytest.raises(BadMessage, match="needs exactly"):
        decode_untrusted(packet(KINDS.index(kind), [*example(kind).values(), extra]))


@pytest.mark.parametrize("frame", [None, 0, {}, {0: 1}, [], "[]", b"[]", 0.5], ids=repr)
def test_a_frame_is_a_list(frame: Any) -> None:
    with pytest.raises(BadMessage, match="a frame is"):
        decode_untrusted(msgpack.packb(frame))


def test_the_documents_say_which_version_this_is() -> None:
    text = (Path(__file__).parents[2] / "docs/ipc.md").read_text()
    assert f"This is version {VERSION} of them" in text


@pytest.mark.parametrize("number", [-1, len(KINDS), (1 << 64) - 1, True, 0.0, "0", None, []])
def test_an_unknown_kind_is_refused(number: Any) -> None:
    with pytest.raises(BadMessage, match=r"its kind an integer 0\.\.23"):
        decode_untrusted(msgpack.packb([number, {}]))


DEEP = b"\x91" * 100_000 + b"\xc0"
LONG = b"\xdd\xff\xff\xff\xff"  # announces 4,294,967,295 elements


@pytest.mark.parametrize(
    "data",
    [DEEP, b"\x92" + DEEP, b"\x92\x00" + DEEP, b"\x92\x05" + DEEP, b"\x92\x05\x81" + DEEP,
     LONG, b"\x94\x07\x01\xa0" + LONG, b"\x92\x05" + LONG, b"\x92\x05\x81" + LONG],
    ids=lambda data: f"{data[:8].hex()} {len(data)}",
)  # fmt: skip
def test_depth_and_announced_lengths_cost_nothing(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage):
            decode_untrusted(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


REPORT: dict[str, Any] = {"host": "h", "sessions": [{"job": "j", "age": 0.5}], "engine": {}}


def test_a_report_comes_back() -> None:
    status = decode_untrusted(encode(Status.of(REPORT)))
    assert isinstance(status, Status) and status.read() == REPORT


@pytest.mark.parametrize(
    "report", [b"", b"[]", b"1", b"{", b"\xff", b'{"a": NaN}', b"[" * 99_999, b'{"a":' * 9999]
)
def test_a_report_that_is_no_map_is_refused(report: bytes) -> None:
    with pytest.raises(BadMessage, match=r"Traced\.report: no JSON map"):
        Traced(report).read()


def test_numbers_of_numpy_are_numbers() -> None:
    packed = encode(Leave(np.float64(0.5)))
    assert decode_untrusted(packed) == Leave(0.5)
    with pytest.raises(TypeError, match="Fraction is neither a text nor a number"):
        encode(Leave(Fraction(1, 2)))  # type: ignore[arg-type]


def test_the_repr_of_a_message_hides_the_proof() -> None:
    assert "proof" not in repr(Join(**example(Join)))


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(anything)
def test_any_value_is_a_message_or_bad(value: Any) -> None:
    try:
        message = decode_untrusted(msgpack.packb(value))
    except BadMessage:
        return
    assert value == msgpack.unpackb(encode(message))[: len(value)]


@given(messages(), st.data(), anything)
def test_any_value_in_one_field_is_a_message_or_bad(
    message: Message, data: st.DataObject, value: Any
) -> None:
    number, *values = msgpack.unpackb(encode(message))
    at = data.draw(st.integers(0, max(len(values) - 1, 0)))
    frame = [number, *values[:at], value, *values[at + 1 :]]
    try:
        accepted = decode_untrusted(msgpack.packb(frame))
    except BadMessage:
        return
    if isinstance(value, str):
        frame[at + 1] = harmless(value)
    assert msgpack.unpackb(encode(accepted)) == frame


def test_the_largest_messages_fit_one_packet() -> None:
    peer = [MAX_WORLD - 1, "h" * 253, "tcp://[2001:db8::ffff:ffff:ffff:ffff]:65535", "k" * 40]
    largest: list[Message] = [
        Join(**example(Join) | {"peers": [peer] * MAX_WORLD}),
        Submit(**example(Submit) | {"exempt": [[1 << 40, 1 << 40]] * MAX_EXEMPT}),
        Failed(1, "c" * 64, "\N{BUG}" * 16 * MAX_TEXT),
    ]
    for message in largest:
        assert len(encode(message)) < MAX_FRAME
