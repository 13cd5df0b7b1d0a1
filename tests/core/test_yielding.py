"""Transfers that yield: behind the others of their stream, those of later operations first."""

from itertools import permutations

import numpy as np
import pytest

from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.datagram import Transmit
from dlcpd.core.wire.header import Key
from tests.core.operations import NOW, session

TAG = 8  # class 2
SEGMENTS = 100


def transfer(operation: int, *, yields: bool, stream: int = 0) -> TransferSender:
    tags, order = np.full(SEGMENTS, TAG, np.uint8), np.arange(SEGMENTS)
    key = Key(stream, operation, int(yields))
    return TransferSender(key, np.zeros(64 * SEGMENTS, np.uint8), 0, 64, tags, order, yields=yields)


def sent(*transfers: TransferSender) -> list[Key]:
    """The transfers in the order in which a flow sends them, if they are queued in this one."""
    flow = session().flows[1]
    flow.window = 1 << 20
    for each in transfers:
        flow.send(each)
    keys: list[Key] = []
    while (batch := flow.outgoing.transmit(NOW, flow.window, 64 * SEGMENTS)) is not None:
        keys += [batch.first.key] if batch.first.key not in keys else []
        flow.paths.tx[0].space(2).acked = flow.paths.tx[0].space(2).sent
    return keys


def test_those_that_yield_come_last_and_the_latest_operation_of_them_first() -> None:
    three = [transfer(n, yields=True) for n in (1, 2, 3)]
    for order in permutations(three):
        found = sent(*(transfer(each.key.operation, yields=True) for each in order))
        assert [key.operation for key in found] == [3, 2, 1]


def test_others_keep_their_order_and_come_before() -> None:
    queued = [(1, True), (2, False), (3, True), (1, False), (3, False)]
    found = sent(*(transfer(number, yields=yields) for number, yields in queued))
    assert found == [(0, 2, 0), (0, 1, 0), (0, 3, 0), (0, 3, 1), (0, 1, 1)]


def test_one_that_has_begun_yields() -> None:
    flow = session().flows[1]
    flow.send(transfer(1, yields=True))
    parts: list[Transmit | None] = [flow.outgoing.transmit(NOW, flow.window, 10 * 104)]
    flow.send(transfer(2, yields=False))
    parts += [flow.outgoing.transmit(NOW, flow.window, 10 * 104) for _ in range(2)]
    assert [part.first.operation for part in parts if part is not None] == [1, 2, 2]


@pytest.mark.parametrize("yields", [False, True])
def test_other_streams_are_not_overtaken(yields: bool) -> None:
    found = sent(transfer(1, yields=True, stream=4), transfer(2, yields=yields))
    assert [key.stream for key in found] == [4, 0]
