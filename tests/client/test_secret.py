"""The secret of a job: what it must be, and what ranks that have it believe of a store."""

import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from dlcp_client.environment import Environment, of_daemon
from dlcp_client.job import transport_vote
from dlcp_client.job.host_peers import HostPeers
from dlcp_client.job.rendezvous import Meeting, Member
from dlcp_client.job.secret import JobSecret, job_secret
from dlcp_client.job.signed_store import MAX_SAID
from dlcpd.contract.errors import BadConfig, BadMessage, NotAuthorised, NotPermitted

TEXT = "0123456789abcdef" * 2
SECRET, OTHER = JobSecret(TEXT.encode(), "x"), JobSecret(TEXT[::-1].encode(), "x")
SOON = 0.05  # seconds; nothing waits for it to pass


def soon() -> float:
    return time.monotonic() + SOON


# --- what it must be -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "x" * 31, "x" * 64, "ab" * 32, "0123456789" * 500], ids=len)
def test_what_can_be_guessed_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match=r"^DLCPD_X: .* random .*`openssl rand -hex 32`"):
        JobSecret(text.encode(), "DLCPD_X")


def test_it_comes_from_the_environment_or_a_file_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(TEXT + "\n")
    file.chmod(0o600)
    for variables in ({"DLCPD_JOB_SECRET": TEXT}, {"DLCPD_JOB_SECRET_FILE": str(file)}):
        environment = Environment.read(variables)
        found = job_secret(environment)
        assert found and found.proves(SECRET.tag("a"), "a")
        assert TEXT not in repr(environment) + repr(found) + repr(Member(HashStore(), 0, 1, found))
    assert job_secret(Environment.read({})) is None


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(BadConfig, match="No such file"):
        job_secret(Environment(secret_file=file))
    file.write_text(TEXT)
    file.chmod(0o644)
    with pytest.raises(BadConfig, match=r"mode 0644; .* chmod 600"):
        job_secret(Environment(secret_file=file))
    with pytest.raises(BadConfig, match="both set"):
        job_secret(Environment(secret=TEXT, secret_file=file))


def test_a_private_daemon_does_not_inherit_it() -> None:
    given = {"DLCPD_JOB_SECRET": TEXT, "DLCPD_JOB_SECRET_FILE": "/x", "PATH": "/bin"}
    assert of_daemon(given) == {"PATH": "/bin"}


def test_parts_cannot_be_moved() -> None:
    tags = {
        SECRET.tag("a", "b", "c"),
        SECRET.tag("a", "bc"),
        SECRET.tag("ab", "c"),
        SECRET.tag("a", "b", "c", ""),
        OTHER.tag("a", "b", "c"),
    }
    assert len(tags) == 5


# --- what is found in a store --------------------------------------------------------------------


def members(store: HashStore, **changes: Any) -> list[Member]:
    return [replace(Member(store, rank, 2, SECRET, "launch"), **changes) for rank in range(2)]


def test_what_ranks_sign_is_understood() -> None:
    store = HashStore()
    ranks = [Meeting(member, "job") for member in members(store)]
    for rank, meeting in enumerate(ranks):
        meeting.publish({"rank": rank})
    assert [meeting.gather(soon()) for meeting in ranks] == [[{"rank": 0}, {"rank": 1}]] * 2
    assert TEXT.encode() not in store.get("dlcp/job/1/0")


FORGED = {
    "without a secret": {"secret": None},
    "with another secret": {"secret": OTHER},
    "of another launch": {"launch": "earlier"},
    "of another world": {"world_size": 3},
}


@pytest.mark.parametrize("changes", FORGED.values(), ids=list(FORGED))
def test_what_is_forged_is_refused_by_name(changes: dict[str, Any]) -> None:
    store = HashStore()
    mine = Meeting(members(store)[0], "job")
    mine.publish({})
    Meeting(members(store, **changes)[1], "job").publish({})
    with pytest.raises(NotAuthorised, match=r"job: the entry of rank 1 in the job's store "):
        mine.gather(soon())


@pytest.mark.parametrize("origin", ["dlcp/vote/1/1", "dlcp/job/1/0", "dlcp/job/2/1"])
def test_what_was_signed_for_another_place_is_refused(origin: str) -> None:
    store = HashStore()
    first, second = members(store)
    for subject in ("job", "vote", "job"):
        for member in (first, second):
            Meeting(member, subject).publish({})
    late = HashStore()
    mine = Meeting(members(late)[0], "job")
    mine.publish({})
    late.set("dlcp/job/1/1", store.get(origin).decode())
    with pytest.raises(
        NotAuthorised, match="rank 1 in the job's store has a signature for another key"
    ):
        mine.gather(soon())


@pytest.mark.parametrize(
    "value", ["{}", "signed", "signed  {}", f"signed {'0' * 64}", "signed é {}", "Signed 0 {}"]
)
def test_parts_of_a_signature_are_none(value: str) -> None:
    store = HashStore()
    mine = Meeting(members(store)[0], "job")
    mine.publish({})
    store.set("dlcp/job/1/1", value)
    with pytest.raises(
        NotAuthorised, match=r"rank 1 in the job's store (is not signed|has a signature for)"
    ):
        mine.gather(soon())


def test_a_rank_without_the_secret_that_others_have_is_told() -> None:
    store = HashStore()
    Meeting(members(store)[1], "job").publish({})
    mine = Meeting(Member(store, 0, 2), "job")
    mine.publish({})
    with pytest.raises(
        NotAuthorised,
        match="rank 1 in the job's store is signed with the secret of a job, and this",
    ):
        mine.gather(soon())


def test_what_is_too_long_is_not_parsed() -> None:
    store = HashStore()
    mine = Meeting(Member(store, 0, 1), "job")
    store.set("dlcp/job/1/0", " " * (MAX_SAID + 1))
    with pytest.raises(BadMessage, match=r"of rank 0 in the job's store has .* the limit is"):
        mine.gather(soon())


def launch(replayed: dict[str, str]) -> str:
    """As rank 0 knows it, when the store holds what rank 1 said in an earlier one."""
    store = HashStore()
    Meeting(Member(store, 1, 2), "job").publish(replayed)
    return HostPeers.meet(Member(store, 0, 2), "job", "", "socket", soon()).launch


def test_no_launch_is_like_another_whatever_is_replayed() -> None:
    said = {"machine": "", "socket_path": "socket", "nonce": "of before"}
    assert launch(said) != launch(said)


def test_who_is_not_authorised_does_not_fall_back() -> None:
    """Or whoever can write the store would take the job to a transport without any proof."""
    store = HashStore()
    member = Member(store, 0, 2)
    Meeting(Member(store, 1, 2), "vote").publish({"problem": "", "fallback": True})
    with pytest.raises(NotAuthorised, match=r"^forged$"):
        transport_vote.hold(member, NotAuthorised("forged"), fallback=True, deadline=soon())
    late = HashStore()
    Meeting(Member(late, 1, 2), "vote").publish({"problem": "forged", "fallback": False})
    with pytest.raises(Exception, match="rank 1 cannot use dlcpd: forged"):
        transport_vote.hold(Member(late, 0, 2), None, fallback=True, deadline=soon())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_nobody_elses_socket_is_taken_for_the_neighbours_daemon() -> None:
    """Its name stands in the store; who listens there has a user, whom the kernel knows."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind("")  # the kernel finds a name that is free
        os.seteuid(65534)  # SO_PEERCRED tells the effective user at listen()
        try:
            sock.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(NotPermitted, match="belongs to user id 65534, not to 0"):
            HostPeers(1, (0, 1), 0, sock.getsockname().decode()).connect(1.0)
