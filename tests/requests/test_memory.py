"""Memory in use: what may be used beside what, and that the table forgets what has ended."""

from types import SimpleNamespace
from typing import Any

import pytest

from dlcpd.contract.errors import BadOperation
from dlcpd.requests.memory import FIRST_ROWS, Claims, Range, ranges_of
from tests.io.engines import ask

READ, WRITE = Range(64, 128, writes=False), Range(64, 128, writes=True)


def operation(ticket: int) -> Any:
    return SimpleNamespace(ticket=ticket)


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [(READ, READ, False), (READ, WRITE, True), (WRITE, READ, True), (WRITE, WRITE, True),
     (WRITE, Range(128, 192, True), False), (WRITE, Range(0, 64, True), False),
     (WRITE, Range(127, 128, True), True), (WRITE, Range(100, 100, True), False),
     (Range(100, 100, True), WRITE, False)],
)  # fmt: skip
def test_only_two_readers_share(first: Range, second: Range, refused: bool) -> None:
    claims = Claims(lambda _: True)
    claims.claim(operation(1), [first])
    if refused:
        with pytest.raises(BadOperation, match=r"operation 2 would .* while operation 1 "):
            claims.claim(operation(2), [second])
    else:
        claims.claim(operation(2), [second])


def test_what_has_ended_is_in_nobodys_way() -> None:
    ended: set[int] = set()
    claims = Claims(lambda held: held.ticket not in ended)
    for ticket in range(20 * FIRST_ROWS):
        claims.claim(operation(ticket), [WRITE])
        ended.add(ticket)
    assert len(claims) <= FIRST_ROWS


def test_each_end_is_looked_up_once() -> None:
    """A training reduces from the same memory at every step."""
    looked: list[int] = []

    def ended(held: Any) -> bool:
        looked.append(held.ticket)
        return False

    claims = Claims(ended)
    for ticket in range(FIRST_ROWS):
        claims.claim(operation(ticket), [WRITE])
    assert looked == list(range(FIRST_ROWS - 1))


def test_as_many_as_are_open_are_kept() -> None:
    claims = Claims(lambda _: True)
    for ticket in range(5 * FIRST_ROWS):
        claims.claim(operation(ticket), [Range(64 * ticket, 64 * ticket + 64, True)])
    with pytest.raises(BadOperation, match=r"operation 3 writes 192\.\.256"):
        claims.claim(operation(-1), [Range(200, 208, False)])


def test_a_refused_operation_holds_nothing() -> None:
    claims = Claims(lambda _: True)
    claims.claim(operation(1), [WRITE])
    with pytest.raises(BadOperation):
        claims.claim(operation(2), [Range(1024, 2048, True), WRITE])
    claims.claim(operation(3), [Range(1024, 2048, True)])


def test_what_a_submission_uses() -> None:
    assert ranges_of(ask(1, count=10)) == [Range(0, 40, True)]
    assert ranges_of(ask(1, count=10, output=64)) == [Range(0, 40, False), Range(64, 104, True)]
    # residuals are added to what a bounded operation reads
    assert ranges_of(ask(1, count=10, output=64, name="w"))[0] == Range(0, 40, True)
