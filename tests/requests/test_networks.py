"""The network of each operation of a session, while offers are settled."""

import pytest

from dlcpd.requests.networks import MAX_EPOCHS, REST, WINDOW, Networks
from dlcpd.schedules.network import HostCapacity, JobNetwork, job_network

G = 10**9


def network(version: int) -> JobNetwork:
    made = job_network([("a", HostCapacity((G,), (G,)))], version)
    assert made is not None
    return made


def test_an_operation_has_the_newest_network_in_force() -> None:
    base, second = network(1), network(2)
    networks = Networks(base)
    assert networks.promise(second, {0: 100, 3: 7}) == {0: 100 + WINDOW, 3: 7 + WINDOW}
    assert networks.adopt(2, {0: 150, 3: 40}, REST)
    assert [networks.at(0, n) for n in (149, 150)] == [base, second]
    assert [networks.at(3, n) for n in (39, 40)] == [base, second]
    assert [networks.at(9, n) for n in (REST - 1, REST)] == [base, second]


def test_an_operation_beyond_its_limit_waits_until_the_offer_is_settled() -> None:
    networks = Networks()
    assert not networks.waits(0, 1 << 30)
    networks.promise(network(2), {0: 100})
    assert [networks.waits(0, n) for n in (100 + WINDOW, 101 + WINDOW)] == [False, True]
    assert [networks.waits(1, n) for n in (WINDOW, WINDOW + 1)] == [False, True]
    networks.cancel(3)  # not the one that waits
    assert networks.waits(0, 101 + WINDOW)
    networks.cancel(2)
    assert not networks.waits(0, 101 + WINDOW) and networks.at(0, 1 << 30) is None


def test_a_repeated_offer_has_the_same_limits_and_no_other_is_taken_meanwhile() -> None:
    networks = Networks()
    first = networks.promise(network(2), {0: 5})
    assert networks.promise(network(2), {0: 15}) == first == {0: 5 + WINDOW}
    assert networks.promise(network(3), {0: 15}) is None


@pytest.mark.parametrize(
    ("firsts", "rest"),
    [({0: 5 + WINDOW}, REST), ({}, REST), ({0: 6 + WINDOW}, REST - 1), ({0: 99, 1: WINDOW}, REST)],
    ids=["at the limit", "not named", "others too early", "one that has not begun"],
)
def test_first_operations_that_are_not_above_the_limits_change_nothing(
    firsts: dict[int, int], rest: int
) -> None:
    networks = Networks()
    networks.promise(network(2), {0: 5})
    assert not networks.adopt(2, firsts, rest)
    assert networks.at(0, 1 << 30) is None and not networks.waits(0, 1 << 30)


def test_what_is_settled_is_not_settled_again() -> None:
    networks = Networks()
    networks.promise(network(2), {0: 5})
    assert networks.adopt(2, {0: 100}, REST) and networks.adopt(2, {0: 200}, REST)
    networks.cancel(2)
    made = networks.at(0, 100)
    assert made is not None and made.version == 2


def test_a_stream_that_goes_on_needs_no_old_networks() -> None:
    """Two streams: one goes on, one stands still."""
    networks, begun = Networks(network(1)), {0: 10, 1: 10}
    for version in range(2, 4 * MAX_EPOCHS):
        limits = networks.promise(network(version), begun)
        assert limits is not None
        assert networks.adopt(version, {s: n + 1 for s, n in limits.items()}, REST)
        begun[0] += 100
    made = networks.at(1, 10 + WINDOW + 1)
    assert made is not None and made.version == version


def test_networks_that_are_still_needed_are_bounded() -> None:
    """Offers in sequence, none of which has come into force."""
    networks, limits = Networks(network(1)), None
    for version in range(2, 2 * MAX_EPOCHS):
        limits = networks.promise(network(version), {0: 10})
        if limits is None:
            break
        networks.adopt(version, {0: 10_000 + version}, REST)
    assert limits is None and version == MAX_EPOCHS + 1
    assert not networks.waits(0, 1 << 30)
