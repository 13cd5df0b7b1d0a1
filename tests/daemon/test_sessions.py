"""Sessions over real daemons: control is real, the engine is the stand-in that tells all."""

import os
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from msgspec.structs import replace

from dlcpd.contract.frames import encode
from dlcpd.contract.inquiries import Status, StatusRequest
from dlcpd.contract.messages import VERSION, Hello, Join, Joined, PeerRow, Refused, Welcome
from dlcpd.io.control_events import MAX_FAILURES
from tests.daemon.kit import (
    ARENA,
    PATIENCE,
    Client,
    Daemon,
    configuration,
    join_all,
    joins,
    until,
)

STREAM: Final = 5
STATUS_REQUEST: Final = encode(StatusRequest(0))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    folder = tmp_path_factory.mktemp("hosts")
    first = configuration(folder, "host-a", "127.0.0.1")
    second = configuration(folder, "host-b", "127.0.0.2")
    with Daemon(first) as a, Daemon(second) as b:
        yield [a, b]


@pytest.fixture
def pair(hosts: list[Daemon]) -> Iterator[list[Client]]:
    with hosts[0].client() as a, hosts[1].client() as b:
        yield [a, b]


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def test_two_ranks_join_and_the_engines_learn_each_other(pair: list[Client], job: str) -> None:
    joined = join_all(pair, job)
    opened = [client.command("OpenSession") for client in pair]
    for rank in (0, 1):
        assert opened[rank]["session"] == joined[rank].session
        assert (opened[rank]["job"], opened[rank]["rank"]) == (job, rank)
        assert (opened[rank]["world_size"], opened[rank]["arena_bytes"]) == (2, ARENA)
    [to_b], [to_a] = opened[0]["peers"], opened[1]["peers"]
    assert (to_b["rank"], to_b["host"]) == (1, "host-b")
    assert to_b["endpoints"] == [["127.0.0.1", 40000]]
    assert to_b["token_out"] == to_a["token_in"] != 0
    assert to_a["token_out"] == to_b["token_in"] != 0
    assert to_a["token_in"] != to_a["token_out"]


def test_ranks_on_one_daemon_join(hosts: list[Daemon], job: str) -> None:
    with hosts[0].client() as a, hosts[0].client() as b:
        assert len(join_all([a, b], job)) == 2


def test_a_rank_alone_joins_at_once(hosts: list[Daemon], job: str) -> None:
    with hosts[0].client() as client:
        [joined] = join_all([client], job)
        opened = client.command("OpenSession")
        assert (opened["session"], opened["world_size"], opened["peers"]) == (joined.session, 1, [])
        [session] = [s for s in client.status()["sessions"] if s["job"] == job]
        assert (session["state"], session["peers"]) == ("open", [])


def test_local_and_remote_ranks_mix(hosts: list[Daemon], job: str) -> None:
    clients = [hosts[n].client() for n in (0, 0, 1)]
    join_all(clients, job)
    peers = clients[0].command("OpenSession")["peers"]
    assert [(p["rank"], p["host"]) for p in peers] == [(1, "host-a"), (2, "host-b")]
    assert len({p["token_in"] for p in peers}) == 2
    for client in clients:
        client.close()


def test_a_rank_that_joins_first_waits_for_the_other(pair: list[Client], job: str) -> None:
    first, second = pair
    requests = joins(job, [client.greet() for client in pair])
    first.send(requests[0])
    until(lambda: first.status()["sessions"], "the session appears while joining")
    [session] = [s for s in first.status()["sessions"] if s["job"] == job]
    assert session["state"] == "joining"
    assert [peer["state"] for peer in session["peers"]] == ["silent"]
    second.send(requests[1])
    assert isinstance(first.receive(), Joined)
    assert isinstance(second.receive(), Joined)


def test_an_heir_is_told_to_its_engines(hosts: list[Daemon], job: str) -> None:
    with hosts[0].client() as a, hosts[1].client() as b:
        former, _ = join_all([a, b], job)
        a.command("OpenSession")
        with hosts[0].client() as heir, hosts[1].client() as other:
            requests = joins(f"{job}-2", [heir.greet(), other.greet()])
            heir.send(replace(requests[0], inherits=former.session))
            other.send(replace(requests[1], inherits=former.session))  # not known there: no error
            assert isinstance(heir.receive(), Joined)
            assert heir.command("OpenSession")["inherits"] == former.session


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_jobs_have_their_given_names_unless_two_have_the_same(hosts: list[Daemon]) -> None:
    first, second, epoch = (f"bert-{digit * 16}" for digit in "abc")
    with hosts[0].client() as one, hosts[0].client() as two, hosts[0].client() as three:
        [former] = join_all([one], first)
        join_all([two], second)
        [request] = joins(epoch, [three.greet()])
        three.send(replace(request, inherits=former.session))  # as in the next epoch of the first
        three.expect(Joined)
        titles = {row["job"]: row["title"] for row in three.status()["sessions"]}
        for job, title in ((first, "bert"), (second, second), (epoch, "bert")):
            assert titles[job] == title
            hosts[0].wait_for("joined", session=f"rank 0 of job {title!r} on host-a")


def test_nobody_inherits_from_another_user() -> None:
    with TemporaryDirectory() as name:  # all may enter it, unlike pytest's own
        Path(name).chmod(0o755)
        refused_to_another_user(Path(name))


def refused_to_another_user(folder: Path) -> None:
    file = configuration(folder, daemon="allowed_users = [65534]")
    alone = Join("job", 0, 1, ARENA, PATIENCE, [])
    with Daemon(file) as daemon, daemon.client() as first:
        first.greet()
        first.send(alone)
        number = first.expect(Joined).session
        os.seteuid(65534)
        try:
            thief = daemon.client()
        finally:
            os.seteuid(0)
        with thief:
            thief.greet()
            thief.send(replace(alone, job="other", inherits=number))
            assert "belongs to another user" in thief.refused("not_permitted")
            thief.send(replace(alone, job="other", inherits=number + 1))
            assert isinstance(thief.receive(), Joined)


def test_a_client_that_leaves_is_named_to_its_peers(pair: list[Client], job: str) -> None:
    [_, b] = join_all(pair, job)
    pair[0].close()
    gone = pair[1].command("PeerGone")
    assert (gone["session"], gone["rank"]) == (b.session, 0)
    assert "rank 0" in gone["text"] and "host-a" in gone["text"]
    [session] = [s for s in pair[1].status()["sessions"] if s["job"] == job]
    assert session["peers"][0]["state"] == "gone"


def test_a_client_that_leaves_closes_its_engine_session(hosts: list[Daemon], job: str) -> None:
    with hosts[0].client() as leaver, hosts[1].client() as stayer:
        [joined, _] = join_all([leaver, stayer], job)
        leaver.sock.close()
        closed = leaver.command("CloseSession")
    assert (closed["session"], closed["code"]) == (joined.session, "session_closed")


def test_an_aborted_operation_is_told_to_peers_once(pair: list[Client], job: str) -> None:
    [_, b] = join_all(pair, job)
    pair[0].emit("OperationsFailed", **failed((7, [1]), text="too slow"))
    told = pair[1].command("AbortOperations")
    [[rank, stream, operation, text, lost]] = told["aborted"]
    assert (told["session"], operation, rank, stream) == (b.session, 7, 0, STREAM)
    assert lost == -1
    assert "rank 0" in text and "too slow" in text
    # The abort of an abort stays here; the next real failure is what arrives.
    pair[1].emit("OperationsFailed", **failed((7, [0]), code="operation_aborted"))
    pair[1].emit("OperationsFailed", **failed((8, [0])))
    assert aborted(pair[0]) == [8]


def test_only_ranks_that_wait_for_an_operation_hear_that_it_failed(
    hosts: list[Daemon], job: str
) -> None:
    clients = [hosts[n].client() for n in (0, 0, 1)]
    join_all(clients, job)
    clients[0].emit("OperationsFailed", **failed((7, [2]), (8, [1, 2])))
    assert aborted(clients[1]) == [8]
    assert aborted(clients[2]) == [7, 8]
    for client in clients:
        client.close()


def test_what_many_waive_is_told_once_and_together(hosts: list[Daemon], job: str) -> None:
    """Four ranks give the same 300 operations up at once."""
    clients = [hosts[n % 2].client() for n in range(5)]
    join_all(clients, job)
    numbers = range(1, 301)
    for rank, client in enumerate(clients[:4]):
        others = [other for other in range(5) if other != rank]
        for first in range(0, 300, MAX_FAILURES):
            rows = [(number, others) for number in numbers[first : first + MAX_FAILURES]]
            client.emit("OperationsFailed", **failed(*rows, text="rank 4 is late" * 20))
    heard: list[int] = []
    while len(heard) < 300:
        heard += aborted(clients[4])
    assert sorted(heard) == list(numbers)
    for client in clients:
        client.close()


def aborted(client: Client) -> list[int]:
    """The operations of the next command about some that were aborted."""
    return [operation for _, _, operation, *_ in client.command("AbortOperations")["aborted"]]


def failed(
    *operations: tuple[int, list[int]], code: str = "deadline_exceeded", text: str = "why"
) -> dict[str, Any]:
    """Fields of OperationsFailed but the session; each with the ranks to tell."""
    return {"failures": [(STREAM, number, ranks, code, text) for number, ranks in operations]}


def test_a_broken_session_is_told_to_peers(pair: list[Client], job: str) -> None:
    join_all(pair, job)
    pair[0].emit("SessionFailed", rank=1, code="peer_lost", text="rank 1 is silent")
    gone = pair[1].command("PeerGone")
    assert gone["rank"] == 0 and "rank 1 is silent" in gone["text"]
    [session] = [s for s in pair[0].status()["sessions"] if s["job"] == job]
    assert (session["state"], session["broken"]) == ("broken", "rank 1 is silent")


def test_a_closed_lane_ends_the_session_though_a_fork_holds_the_socket(
    pair: list[Client], job: str
) -> None:
    join_all(pair, job)
    lane, pair[0].lane = pair[0].lane, None
    assert lane
    lane.close()
    pair[0].refused("session_closed")
    assert pair[0].receive() is None
    assert pair[1].command("PeerGone")["rank"] == 0


def test_the_same_rank_twice_is_refused(hosts: list[Daemon], pair: list[Client], job: str) -> None:
    join_all(pair, job)
    with hosts[0].client() as intruder:
        welcomes = [intruder.greet(), intruder_peer(pair)]
        intruder.send(joins(job, welcomes)[0])
        text = intruder.refused("not_permitted")
        assert job in text and "rank 0" in text
        intruder.send(joins(job + "-other", welcomes, timeout=0.0)[0])  # the socket stays usable
        intruder.refused("peer_lost")


def intruder_peer(pair: list[Client]) -> Welcome:
    """Any welcome will do for a peer that is never asked."""
    status = pair[1].status()
    return Welcome(VERSION, status["host"], status["endpoints"]["control"], "0" * 40)


def test_two_jobs_of_one_rank_do_not_mix(hosts: list[Daemon], job: str) -> None:
    clients = [hosts[n].client() for n in (0, 1, 0, 1)]
    join_all(clients[:2], job + "-one")
    join_all(clients[2:], job + "-two")
    clients[0].close()
    assert "-one" in clients[1].command("PeerGone")["text"]
    states = {s["job"]: s["peers"][0]["state"] for s in clients[3].status()["sessions"]}
    assert states[job + "-two"] == "up"
    for client in clients[1:]:
        client.close()


def test_a_job_can_be_joined_again_after_it_ended(hosts: list[Daemon], job: str) -> None:
    for _ in range(3):
        clients = [host.client() for host in hosts]
        join_all(clients, job)
        for client in clients:
            client.close()
        for host in hosts:
            until(partial(is_over, host, job), "the session is gone")


def test_sessions_leave_no_descriptor_behind(hosts: list[Daemon], job: str) -> None:
    ports = count(1)

    def cycle() -> None:
        clients = [host.client() for host in hosts]
        join_all(clients, job)
        for client in clients:
            client.close()
        refused = hosts[0].client()
        refused.greet()
        for port in islice(ports, 4):
            nobody = Welcome(VERSION, "h", f"tcp://127.0.0.9:{port}", "0" * 40)
            refused.send(joins(job + "-refused", [nobody] * 2, timeout=0.0)[0])
            refused.refused("peer_lost")
        refused.close()
        for host in hosts:
            until(partial(is_over, host, job), "the session is gone")

    cycle()  # what is made once is made now
    before = [host.descriptors for host in hosts]
    for _ in range(5):
        cycle()
    for host, most in zip(hosts, before, strict=True):
        until(partial(has_at_most, host, most), "closed lines have lingered out")


def has_at_most(host: Daemon, descriptors: int) -> bool:
    return host.descriptors <= descriptors


def is_over(host: Daemon, job: str) -> bool:
    with host.client() as watcher:
        watcher.greet()
        return job not in {session["job"] for session in watcher.status()["sessions"]}


def test_a_peer_that_never_answers_is_named(hosts: list[Daemon], job: str) -> None:
    with hosts[0].client() as client:
        here = client.greet()
        # A real address where nobody listens, and a valid key that nobody has.
        nobody = Welcome(VERSION, "host-x", "tcp://127.0.0.9:9", here.public_key)
        client.send(joins(job, [here, nobody], timeout=0.2)[0])
        text = client.refused("peer_lost")
    for part in ("rank 1 on host-x", "tcp://127.0.0.9:9", "never answered", "after 0.2 s", job):
        assert part in text


def test_a_join_that_timed_out_can_be_tried_again(pair: list[Client], job: str) -> None:
    welcomes = [client.greet() for client in pair]
    pair[0].send(joins(job, welcomes, timeout=0.1)[0])
    pair[0].refused("peer_lost")
    for client, join in zip(pair, joins(job, welcomes), strict=True):
        client.send(join)
    for client in pair:
        client.expect(Joined)


@pytest.mark.parametrize("first", [0, 1])
def test_a_world_size_that_differs_is_named_to_both(
    pair: list[Client], job: str, first: int
) -> None:
    welcomes = [client.greet() for client in pair]
    three = [*welcomes, welcomes[0]]
    requests = [joins(job, welcomes)[0], joins(job, three)[1]]
    for rank in (first, 1 - first):
        pair[rank].send(requests[rank])
    for client in pair:
        text = client.refused("ranks_disagree")
        for part in ("world_size", "rank 0 on host-a", "rank 1 on host-b", "has 2", "has 3"):
            assert part in text


@pytest.mark.parametrize(
    ("network", "name"),
    [("chunk_bytes = 64000", "chunk_bytes")],
)
def test_a_configuration_that_differs_is_named_to_both(
    hosts: list[Daemon], tmp_path: Path, job: str, network: str, name: str
) -> None:
    other = configuration(
        tmp_path,
        "host-c",
        "127.0.0.3",
        more=f'[network]\npaths = [{{ address = "127.0.0.3" }}]\n{network}',
    )
    with Daemon(other) as third, hosts[0].client() as a, third.client() as c:
        for client, join in zip((a, c), joins(job, [a.greet(), c.greet()]), strict=True):
            client.send(join)
        for client in (a, c):
            text = client.refused("ranks_disagree")
            assert name in text and "rank 0 on host-a" in text and "rank 1 on host-c" in text


def test_a_bystander_of_a_disagreement_is_told_too(hosts: list[Daemon], job: str) -> None:
    """Rank 2 agrees with rank 0, but rank 0 aborts because of rank 1."""
    clients = [hosts[n].client() for n in (0, 1, 1)]
    welcomes = [client.greet() for client in clients]
    good = joins(job, welcomes)
    bad = joins(job, [*welcomes, welcomes[0]])[1]
    clients[0].send(good[0])
    clients[2].send(good[2])
    until(lambda: "up" in peer_states(clients[2], job), "ranks 0 and 2 are up with each other")
    until(lambda: "up" in peer_states(clients[0], job), "ranks 0 and 2 are up with each other")
    clients[1].send(bad)
    for client in clients:
        assert "world_size" in client.refused("ranks_disagree")
        client.close()


def peer_states(client: Client, job: str) -> list[str]:
    return [p["state"] for s in client.status()["sessions"] if s["job"] == job for p in s["peers"]]


def test_a_frame_that_is_no_message_is_answered_and_counted(pair: list[Client], job: str) -> None:
    join_all(pair, job)
    before = pair[0].counters().get("refused_bad_message", 0)
    frames = [b"\xc1", b"\x93\x00", b"x" * 150_000, b"\x92" + b"\x91" * 1015 + b"\xc0\x80"]
    for frame in frames:
        pair[0].sock.send(frame)
        pair[0].refused("bad_message")
    assert pair[0].counters()["refused_bad_message"] == before + len(frames)
    [session] = [s for s in pair[0].status()["sessions"] if s["job"] == job]
    assert session["state"] == "open"


def test_a_frame_longer_than_allowed_is_refused(hosts: list[Daemon]) -> None:
    with hosts[0].client() as client:
        client.greet()
        client.sock.send(b"\xc0" * 200_000)
        assert "at most" in client.refused("bad_message")


def test_descriptors_from_a_client_are_not_kept(hosts: list[Daemon]) -> None:
    import socket  # noqa: PLC0415  # only here

    ours, theirs = socket.socketpair()
    with hosts[0].client() as client, ours:
        client.greet()
        socket.send_fds(client.sock, [b"\xc0"], [theirs.fileno()])
        theirs.close()
        client.refused("bad_message")
        ours.settimeout(PATIENCE)
        assert ours.recv(1) == b""  # the kernel closed the copy in flight


def bad_joins(welcomes: list[Welcome]) -> dict[str, Join]:
    good = joins("bad", welcomes)[0]
    other = good.peers[1]

    def with_peers(*peers: PeerRow) -> Join:
        return Join(good.job, 0, 2, ARENA, 1.0, list(peers))

    return {
        "rank": Join(good.job, 2, 2, ARENA, 1.0, good.peers),
        "missing": with_peers(good.peers[0]),
        "twice": with_peers(good.peers[0], other, other),
        "unknown": with_peers(good.peers[0], other._replace(rank=2)),
        "ipc": with_peers(PeerRow(1, "h", "ipc:///tmp/x", other[3])),
        "name": with_peers(PeerRow(1, "h", "tcp://localhost:5", other[3])),
        "any": with_peers(PeerRow(1, "h", "tcp://0.0.0.0:5", other[3])),
        "source": with_peers(PeerRow(1, "h", "tcp://127.0.0.1:1;127.0.0.1:5", other[3])),
        "port": with_peers(PeerRow(1, "h", "tcp://127.0.0.1:0", other[3])),
        "octet": with_peers(PeerRow(1, "h", "tcp://127.0.0.256:5", other[3])),
        "short_key": with_peers(PeerRow(1, "h", other[2], other[3][:-1])),
        "odd_key": with_peers(PeerRow(1, "h", other[2], '"' * 40)),
        "high_key": with_peers(PeerRow(1, "h", other[2], "#" * 40)),
        "wide_key": with_peers(PeerRow(1, "h", other[2], "\u20ac" * 40)),
    }


@pytest.mark.parametrize("what", list(bad_joins([Welcome(1, "", "", "")] * 2)))
def test_a_join_with_a_bad_peer_list_is_refused(pair: list[Client], what: str) -> None:
    welcomes = [client.greet() for client in pair]
    pair[0].send(bad_joins(welcomes)[what])
    pair[0].refused("bad_message")


def test_frames_out_of_order_are_refused(pair: list[Client], job: str) -> None:
    client = pair[0]
    client.send(joins(job, [pair[1].greet()] * 2)[0])
    assert "not expected when new" in client.refused("bad_message")
    client.sock.send(STATUS_REQUEST)
    client.refused("bad_message")
    client.send(Hello(VERSION + 1, "future"))
    assert "same release" in client.refused("bad_message")
    client.greet()
    client.send(Hello(VERSION, "again"))
    client.refused("bad_message")
    client.send(Refused("x", "not for a daemon"))
    client.refused("bad_message")


def test_joining_twice_on_one_connection_is_refused(pair: list[Client], job: str) -> None:
    join_all(pair, job)
    welcomes = [Welcome(VERSION, "h", "tcp://127.0.0.1:1", "0" * 40)] * 2
    pair[0].send(joins(job + "-more", welcomes)[0])
    assert "joined" in pair[0].refused("bad_message")


def test_limits_are_named(tmp_path: Path, job: str) -> None:
    config = configuration(tmp_path, daemon="max_sessions = 2\nmax_arena_bytes = 65536")
    with Daemon(config) as daemon, daemon.client() as a, daemon.client() as b:
        welcomes = [a.greet(), b.greet()]
        for client, join in zip((a, b), joins(job, welcomes), strict=True):
            client.send(join)
            big = Join(job, 0, 2, ARENA + 1, 1.0, join.peers)
        a.expect(Joined)
        b.expect(Joined)
        with daemon.client() as c:
            c.greet()
            c.send(joins(job + "-more", welcomes)[0])
            assert "max_sessions" in c.refused("too_many")
            a.close()
            until(lambda: len(c.status()["sessions"]) == 1, "the first session is gone")
            c.send(big)
            assert "max_arena_bytes" in c.refused("too_many")
            assert len(c.status()["sessions"]) == 1


def test_status_carries_the_engines_report(pair: list[Client], hosts: list[Daemon]) -> None:
    welcome = pair[0].greet()
    status = pair[0].status(ledger=5)
    assert (status["engine"]["stand_in"], status["engine"]["ledger"]) == (True, 5)
    assert status["host"] == "host-a" and status["version"] and status["uptime"] >= 0
    assert status["endpoints"]["control"] == welcome.endpoint
    assert status["endpoints"]["data"] == [["127.0.0.1", 40000]]


def test_a_second_status_request_waits_for_the_first(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path), mode="deaf") as daemon, daemon.client() as client:
        client.greet()
        client.sock.send(STATUS_REQUEST)
        client.sock.send(STATUS_REQUEST)
        client.refused("too_many")
        answer = client.receive()
        assert isinstance(answer, Status)
        assert "did not answer" in answer.read()["engine"]["error"]
