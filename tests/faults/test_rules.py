"""What the relay's rules do to datagrams, without a network."""

from collections import Counter
from collections.abc import Sequence

import pytest

from dlcp_lab.faults.network import Network
from dlcp_lab.faults.rules import (
    Corrupt,
    Cut,
    Drop,
    Duplicate,
    Passage,
    Reorder,
    Rule,
    Way,
)
from dlcpd.core.wire import bundle
from dlcpd.core.wire.header import Header, Kind

SENT = [Passage(0, 1, 0, Header(Kind.DATA, 7, segment=number).pack()) for number in range(200)]


def through(rule: Rule, passages: Sequence[Passage] = SENT) -> list[Passage]:
    return [out for each in passages for out in rule.take(each)] + list(rule.rest())


@pytest.mark.parametrize(
    ("way", "held"),
    [
        (Way(), True),
        (Way(0), True),
        (Way(1), False),
        (Way(target=1), True),
        (Way(0, 1, 0), True),
        (Way(path=1), False),
    ],
)
def test_a_rule_is_about_some_ways(way: Way, held: bool) -> None:
    rule = Cut([way])
    assert bool(through(rule)) is not held
    assert rule.fired == (len(SENT) if held else 0)


def test_the_first_that_is_meant_is_lost_and_comes_through_when_it_is_repeated() -> None:
    rule = Drop([Way()], lambda header: header.segment == 3, most=1)
    assert through(rule) == SENT[:3] + SENT[4:]
    assert through(rule) == SENT
    assert rule.fired == 1
    assert through(Drop([Way()], lambda _: True), [Passage(0, 1, 0, b"none of ours")])


def test_a_bundle_is_lost_with_any_part_that_is_meant() -> None:
    def bundled(*segments: int) -> Passage:
        parts = [Header(Kind.DATA, 7, segment=each).pack() for each in segments]
        return Passage(0, 1, 0, bundle.pack(7, 0, 0, parts))

    rule = Drop([Way()], lambda header: header.segment == 3)
    assert through(rule, [bundled(1, 3), bundled(1, 2)]) == [bundled(1, 2)]
    assert bundled(1, 3)._replace(data=bundled(1, 3).data[:-1]).headers == []


def test_all_that_are_meant_are_lost_each_time() -> None:
    rule = Drop([Way()], lambda header: header.segment > 3)
    assert through(rule) == through(rule) == SENT[:4]
    assert rule.fired == 2 * len(SENT[4:])


def test_corrupt_turns_one_bit_over() -> None:
    rule = Corrupt([Way()], 1, 0.3)
    differing = [
        (int.from_bytes(old.data) ^ int.from_bytes(new.data)).bit_count()
        for old, new in zip(SENT, through(rule), strict=True)
    ]
    assert Counter(differing) == {0: len(SENT) - rule.fired, 1: rule.fired}
    assert 20 < rule.fired < 100


def test_duplicate_repeats_and_loses_nothing() -> None:
    rule = Duplicate([Way()], 1, 0.3)
    got = through(rule)
    assert set(got) == set(SENT)
    assert len(got) == len(SENT) + 2 * rule.fired
    assert rule.fired > 0


def test_reorder_mixes_and_loses_nothing() -> None:
    rule = Reorder([Way()], 1, 7)
    got = through(rule)
    assert got != SENT and sorted(got) == sorted(SENT)
    assert rule.fired > 0
    assert max(abs(got.index(each) - at) for at, each in enumerate(SENT)) < 7


@pytest.mark.parametrize("kind", [Corrupt, Duplicate])
def test_a_seed_does_the_same_again(kind: "type[Corrupt | Duplicate]") -> None:
    assert through(kind([Way()], 5, 0.2)) == through(kind([Way()], 5, 0.2))
    assert through(kind([Way()], 5, 0.2)) != through(kind([Way()], 6, 0.2))


def test_an_address_tells_the_host_and_no_two_are_the_same() -> None:
    networks = [Network(4, 3), Network(4, 3)]
    addresses = [
        make(host, path)
        for net in networks
        for make in (net.address, net.relay)
        for host in range(4)
        for path in range(3)
    ]
    assert len(set(addresses)) == len(addresses)
    assert networks[0].host_of(networks[0].address(3, 2)) == 3
