"""IPC frames: what goes out comes back; whatever else comes in is a BadMessage, nothing more."""

from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.frames import KINDS, from_frame_untrusted, to_frame
from dlcpd.contract.messages import (
    MAX_EXEMPT,
    MAX_FRAME,
    MAX_TEXT,
    MAX_WORLD,
    VERSION,
    Failed,
    Join,
    Message,
    Submit,
)
from tests.contract.frames import bad_values, example, good_values, messages, rules

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
    packet = msgpack.packb(to_frame(message))
    assert from_frame_untrusted(msgpack.unpackb(packet)) == message


@pytest.mark.parametrize(("kind", "name", "value"), GOOD)
def test_a_field_may_reach_its_limits(kind: type[Message], name: str, value: Any) -> None:
    frame = [KINDS.index(kind), list((example(kind) | {name: value}).values())]
    if isinstance(value, list):
        value = [tuple(row) if isinstance(row, list) else row for row in value]
    assert getattr(from_frame_untrusted(frame), name) == value


@pytest.mark.parametrize(("kind", "name", "value"), BAD)
def test_one_bad_field_is_enough(kind: type[Message], name: str, value: Any) -> None:
    frame = [KINDS.index(kind), list((example(kind) | {name: value}).values())]
    with pytest.raises(BadMessage, match=rf"^{kind.__name__}\.{name}: .") as caught:
        from_frame_untrusted(frame)
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
    message = from_frame_untrusted([KINDS.index(kind), list((example(kind) | hostile).values())])
    for name, value in hostile.items():
        for text in [value] if isinstance(value, str) else getattr(message, name)[0]:
            if isinstance(text, str):
                limit = rules(kind)[name]["high"] if isinstance(value, str) else MAX_TEXT
                shown = getattr(message, name) if isinstance(value, str) else text
                assert shown == SHOWN[:limit]


@EACH_KIND
def test_a_missing_field_is_refused(kind: type[Message]) -> None:
    for name in rules(kind):
        rest = [value for key, value in example(kind).items() if key != name]
        with pytest.raises(BadMessage, match="needs exactly"):
            from_frame_untrusted([KINDS.index(kind), rest])


@EACH_KIND
@pytest.mark.parametrize("extra", ["", "colour", 1, b"rank", None, []], ids=repr)
def test_an_extra_field_is_refused(kind: type[Message], extra: Any) -> None:
    with pytest.raises(BadMessage, match="needs exactly"):
        from_frame_untrusted([KINDS.index(kind), [*example(kind).values(), extra]])


@EACH_KIND
@pytest.mark.parametrize("values", [None, {}, 1, "values", ()], ids=repr)
def test_values_that_are_no_list_are_refused(kind: type[Message], values: Any) -> None:
    with pytest.raises(BadMessage, match="needs exactly"):
        from_frame_untrusted([KINDS.index(kind), values])


@pytest.mark.parametrize("frame", [None, 0, {}, [], [0], [0, {}, {}], "[]", (0, {})], ids=repr)
def test_a_frame_is_a_pair(frame: Any) -> None:
    with pytest.raises(BadMessage, match="a frame is"):
        from_frame_untrusted(frame)


def test_the_documents_say_which_version_this_is() -> None:
    text = (Path(__file__).parents[2] / "docs/ipc.md").read_text()
    assert f"this is version {VERSION} of them" in text


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "number",
    [-1, len(KINDS), 1 << 20_000, True, 0.0, "0", None, [], nested(100_000)],
    ids=["-1", "one too many", "20,000 bits", "True", "0.0", "text", "None", "list", "deep"],
)
def test_an_unknown_kind_is_refused(number: Any) -> None:
    with pytest.raises(BadMessage, match="a message kind is"):
        from_frame_untrusted([number, {}])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(anything)
def test_any_value_is_a_message_or_bad(value: Any) -> None:
    try:
        message = from_frame_untrusted(value)
    except BadMessage:
        return
    assert list(value) == to_frame(message)


@given(messages(), st.data(), anything)
def test_any_value_in_one_field_is_a_message_or_bad(
    message: Message, data: st.DataObject, value: Any
) -> None:
    number, values = to_frame(message)
    at = data.draw(st.integers(0, len(values) - 1))
    frame = [number, [*values[:at], value, *values[at + 1 :]]]
    try:
        accepted = from_frame_untrusted(frame)
    except BadMessage:
        return
    assert to_frame(accepted) == frame


def test_the_largest_messages_fit_one_packet() -> None:
    peer = [MAX_WORLD - 1, "h" * 253, "tcp://[2001:db8::ffff:ffff:ffff:ffff]:65535", "k" * 40]
    largest: list[Message] = [
        Join(**example(Join) | {"peers": [peer] * MAX_WORLD}),
        Submit(**example(Submit) | {"exempt": [[1 << 40, 1 << 40]] * MAX_EXEMPT}),
        Failed(1, "c" * 64, "\N{BUG}" * 16 * MAX_TEXT),
    ]
    for message in largest:
        assert len(msgpack.packb(to_frame(message))) < MAX_FRAME
