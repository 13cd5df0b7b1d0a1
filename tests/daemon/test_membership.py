"""The join between ranks: pure machines, and a bad network between them."""

import random
from collections.abc import Iterator
from itertools import product

import pytest
from msgspec.structs import replace

from dlcpd.contract.errors import NotAuthorised, RanksDisagree
from dlcpd.daemon.peers.membership import (
    LINKS,
    MAX_NAMED,
    SETTINGS,
    Link,
    LinkInput,
    LinkState,
    Membership,
)
from dlcpd.daemon.peers.peer_messages import (
    MAX_ABORTED,
    MAX_REASON,
    PEER_VERSION,
    UNKNOWN,
    AbortedRow,
    PeerHello,
)
from dlcpd.io.commands import UdpAddress
from dlcpd.schedules.network import Costs

AGREED = {"world_size": 2, "chunk_bytes": 64000, "digest_every": 16, "checksum": 1,
          "data_encryption": 0}  # fmt: skip
MAX_STEPS = 10_000


def member(rank: int, size: int = 2, *, session: int = 0, address: str = "10.0.0.1") -> Membership:
    links = {
        peer: Link(
            peer, f"host-{peer}", f"tcp://10.0.1.{peer}:1", f"key-{peer}", 100 * rank + peer + 1
        )
        for peer in range(size)
        if peer != rank
    }
    return Membership(
        "job",
        rank,
        session or 1000 + rank,
        f"host-{rank}",
        [[UdpAddress(address, 40 + rank)]],
        {**AGREED, "world_size": size},
        links,
    )


def deliver(sender: Membership, receiver: Membership) -> list[PeerHello]:
    """One hello; what the receiver answers."""
    hello = sender.hello_to(sender.links[receiver.rank])
    link = receiver.links[sender.rank]
    receiver.joining_hello(link, hello)
    return [receiver.hello_to(link)] if hello.answer else []


def run(members: list[Membership], rng: random.Random, *, loss: float) -> int:
    """Hellos under loss, repetition and reordering until all are up; the hellos it took."""
    flying: list[PeerHello] = []
    for step in range(MAX_STEPS):
        for each in members:
            if each.met and each.round_trip == UNKNOWN:
                each.round_trip = 10 * each.rank + 1
            each.serving |= each.measured  # the engines need no time here
        if all(m.complete for m in members):
            return step
        if not flying:
            flying = [m.hello_to(link) for m in members for link in m.waiting]
        hello = flying.pop(rng.randrange(len(flying)))
        if rng.random() < loss:
            continue
        if rng.random() < 0.2:
            flying.append(hello)
        receiver = members[hello.to_rank]
        link = receiver.links[hello.from_rank]
        receiver.joining_hello(link, hello)
        if hello.answer:
            flying.append(receiver.hello_to(link))
    raise AssertionError(f"livelock after {MAX_STEPS} hellos")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [2, 5])
def test_all_links_come_up_over_a_bad_network(size: int, seed: int) -> None:
    members = [member(rank, size) for rank in range(size)]
    run(members, random.Random(seed), loss=0.3)
    for one, other in product(members, members):
        if one is not other:
            here, there = one.links[other.rank], other.links[one.rank]
            assert here.token_out == there.token_in
            assert [here.endpoints_of(0)] == other.endpoints
            assert here.session == other.session
    assert {each.longest_round_trip for each in members} == {10 * (size - 1) + 1}


def test_three_hellos_bring_two_links_up() -> None:
    a, b = member(0), member(1)
    [answer] = deliver(a, b)
    assert not b.met
    a.joining_hello(a.links[1], answer)
    assert a.met
    deliver(a, b)
    assert b.met


def test_a_join_is_done_when_the_engines_of_all_serve_it() -> None:
    a, b = member(0), member(1)
    for each in (a, b):
        [link] = each.links.values()
        link.state, link.round_trip, each.round_trip = LinkState.UP, 1, 1
    a.links[1].session, b.links[0].session = b.session, a.session
    a.serving = True
    assert deliver(a, b), "a does not know yet whether b's engines serve it, so it asks"
    assert not b.complete, "its own do not"
    b.serving = True
    assert b.complete
    assert deliver(b, a) == [], "b knows all, so it asks no more: no endless exchange"
    assert a.complete
    assert deliver(a, b) == []


def test_a_lost_last_hello_is_asked_for_again() -> None:
    a, b = member(0), member(1)
    [answer] = deliver(a, b)
    a.joining_hello(a.links[1], answer)  # a is up; what it answers gets lost
    [again] = deliver(b, a)  # b repeats its hello
    b.joining_hello(b.links[0], again)
    assert b.met


def test_engines_wait_for_the_round_trips_of_all() -> None:
    a, b = member(0), member(1)
    early = a.hello_to(a.links[1])
    [answer] = deliver(a, b)
    a.joining_hello(a.links[1], answer)
    a.round_trip = 7
    assert a.met
    assert not a.measured
    deliver(a, b)
    b.joining_hello(b.links[0], early)  # overtaken: it takes nothing back
    assert not b.measured
    b.round_trip = 5
    assert b.measured
    deliver(b, a)
    assert a.measured
    assert a.longest_round_trip == b.longest_round_trip == 7


def test_the_largest_costs_hold() -> None:
    a, b = member(0), member(1)
    a.costs, b.costs = Costs(1, 20, 3, 40), Costs(10, 2, 30, 4)
    a.joining_hello(a.links[1], b.hello_to(b.links[0]))
    b.joining_hello(b.links[0], a.hello_to(a.links[1]))
    assert a.largest_costs == b.largest_costs == Costs(10, 20, 30, 40)


def test_a_peer_that_starts_again_is_measured_again() -> None:
    a, b = member(0), member(1)
    b.round_trip = 5
    deliver(b, a)
    assert a.links[1].round_trip == 5
    deliver(member(1, session=2000), a)
    assert a.links[1].round_trip == UNKNOWN


def test_an_overtaken_hello_changes_nothing() -> None:
    a, b = member(0), member(1)
    early = a.hello_to(a.links[1])
    run([a, b], random.Random(1), loss=0.0)
    b.joining_hello(b.links[0], early)
    assert b.complete


def test_a_peer_that_started_again_is_followed() -> None:
    a, b = member(0), member(1)
    run([a, b], random.Random(1), loss=0.0)
    reborn = member(0, session=2000)
    deliver(reborn, b)
    assert b.links[0].state is LinkState.HEARD
    assert b.links[0].session == 2000


def test_a_hello_of_an_earlier_session_is_ignored() -> None:
    old, new, b = member(0, session=2000), member(0, session=2001), member(1)
    run([new, b], random.Random(1), loss=0.0)
    deliver(old, b)
    assert b.complete
    assert b.links[0].session == 2001
    assert not b.rejoined(b.links[0], old.hello_to(old.links[1]))
    newer = member(0, session=2002)
    assert b.rejoined(b.links[0], newer.hello_to(newer.links[1]))


@pytest.mark.parametrize("name", AGREED)
def test_a_disagreement_names_both_ranks_and_values(name: str) -> None:
    a, b = member(0), member(1)
    others = 1 - a.agreed[name] if name in SETTINGS else 77
    b.agreed[name] = others
    with pytest.raises(RanksDisagree) as caught:
        deliver(b, a)
    shown = [
        SETTINGS[name][value] if name in SETTINGS else str(value)
        for value in (AGREED[name], others)
    ]
    for part in (name, "rank 0 on host-0", "rank 1 on host-1", *shown):
        assert part in str(caught.value)


def test_ip_versions_that_differ_are_named() -> None:
    with pytest.raises(RanksDisagree, match=r"path 0.*10\.0\.0\.1.*fd00::1"):
        deliver(member(1, address="fd00::1"), member(0))


def test_another_protocol_version_is_named() -> None:
    a = member(0)
    text = str(a.other_version(a.links[1], 9))
    assert f"version {PEER_VERSION}" in text and "rank 1 on host-1 speaks 9" in text


def test_a_goodbye_to_this_join_ends_it() -> None:
    a, b = member(0), member(1)
    deliver(a, b)
    deliver(b, a)
    goodbye = a.goodbye_to(a.links[1], "peer_lost", "because")
    assert b.joining_goodbye(b.links[0], goodbye)


def test_a_goodbye_from_a_peer_that_did_not_know_us_only_forgets_it() -> None:
    a, b = member(0), member(1)
    deliver(a, b)
    goodbye = a.goodbye_to(a.links[1], "peer_lost", "my client died")
    assert not b.joining_goodbye(b.links[0], goodbye)
    assert state_of(b) == LinkState.SILENT
    assert "left: my client died" in str(b.timed_out(1.0))
    deliver(member(0, session=2000), b)
    assert state_of(b) == LinkState.HEARD


def state_of(member: Membership) -> LinkState:
    [link] = member.links.values()
    return link.state


def test_a_goodbye_of_an_earlier_session_is_ignored() -> None:
    old, new, b = member(0, session=2000), member(0, session=2001), member(1)
    run([new, b], random.Random(1), loss=0.0)
    old_goodbye = old.goodbye_to(old.links[1], "x", "y")
    assert not b.joining_goodbye(b.links[0], old_goodbye)
    assert b.complete


def news(a: Membership, b: Membership) -> Iterator[tuple[str, bool]]:
    """Variants of a goodbye from `a`, and whether each concerns `b`."""
    good = a.goodbye_to(a.links[1], "x", "y")
    yield "good", b.concerns(b.links[0], good)
    yield "session", b.concerns(b.links[0], replace(good, session=good.session + 1))
    yield "echo", b.concerns(b.links[0], replace(good, echo=good.echo + 1))


def test_only_news_of_both_present_sessions_concern_an_open_one() -> None:
    a, b = member(0), member(1)
    run([a, b], random.Random(1), loss=0.0)
    deliver(b, a)
    assert dict(news(a, b)) == {"good": True, "session": False, "echo": False}
    b.links[0].step(LinkInput.LEAVE)
    assert not any(dict(news(a, b)).values()), "who is gone says nothing any more"


def test_a_timeout_names_every_silent_rank_up_to_a_limit() -> None:
    few = member(0, 3)
    deliver(member(1, 3), few)
    text = str(few.timed_out(2.5))
    assert "after 2.5 s, 2 of 2 peers" in text
    assert "rank 1 on host-1 (tcp://10.0.1.1:1) answered once, then fell silent" in text
    assert "rank 2 on host-2 (tcp://10.0.1.2:1) never answered" in text
    many = str(member(0, 100).timed_out(1.0))
    assert many.count("never answered") == MAX_NAMED and "and 91 more" in many


def test_a_timeout_names_the_host_whose_daemon_only_itself_reaches() -> None:
    def waits(own: str, other: str) -> str:
        one = member(0, 2, address=own)
        one.links[1].endpoint = f"tcp://{other}:1"
        return str(one.timed_out(1.0))

    assert waits("10.0.0.1", "127.0.0.1").endswith("the daemon of host-1")
    assert waits("127.0.0.1", "10.0.0.1").endswith("the daemon of host-0")
    assert "loopback" not in waits("10.0.0.1", "10.0.0.2")
    assert "loopback" not in waits("127.0.0.1", "127.0.0.2")


def test_a_reason_fits_its_message() -> None:
    a = member(0)
    long = "x" * (2 * MAX_REASON)
    assert len(a.goodbye_to(a.links[1], "c", long).text) == MAX_REASON


def test_what_was_waived_is_told_in_messages_of_a_bounded_size() -> None:
    a, rows = member(0), [AbortedRow(6, number, "why", -1) for number in range(30)]
    aborts = list(a.aborts_to(a.links[1], 2, rows))
    assert [len(abort.aborted) for abort in aborts] == [MAX_ABORTED, MAX_ABORTED, 6]
    assert [row for abort in aborts for row in abort.aborted] == rows
    assert {abort.engine for abort in aborts} == {2}


def test_every_state_but_gone_has_every_input_that_can_happen() -> None:
    joining = {LinkInput.HELLO, LinkInput.CONFIRM, LinkInput.FORGET}
    for state in (LinkState.SILENT, LinkState.HEARD, LinkState.UP):
        assert {event for s, event in LINKS if s is state} >= joining
    assert not [pair for pair in LINKS if pair[0] is LinkState.GONE]
    assert set(LINKS.values()) == set(LinkState)


def test_a_peer_is_called_by_the_name_of_its_key_and_not_by_its_own() -> None:
    here, there = member(0), member(1)
    hello = there.hello_to(there.links[0])
    here.joining_hello(here.links[1], replace(hello, host="somebody-else"))
    assert here.links[1].host == "somebody-else"
    here.links[1].known_as = "host-1"
    here.joining_hello(here.links[1], replace(hello, host="somebody-else"))
    assert here.links[1].host == "host-1"


@pytest.mark.parametrize(("ours", "theirs"), [("a", "b"), ("a", ""), ("", "b"), ("a", "é")])
def test_who_proves_another_secret_is_no_rank_of_the_job(ours: str, theirs: str) -> None:
    here, there = member(0), member(1)
    here.proof, there.proof = ours, theirs
    with pytest.raises(NotAuthorised, match="rank 1 of job 'job' does not know the secret"):
        deliver(there, here)
    assert here.links[1].state is LinkState.SILENT
    assert "proof" not in repr(here) and "proof" not in repr(here.hello_to(here.links[1]))
