"""Admission and the table of sessions, without sockets, engines or a loop."""

from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from dlcpd.contract.errors import DaemonUnavailable, DlcpError, NotAuthorised, NotPermitted, TooMany
from dlcpd.contract.messages import Join
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.peers.authorised import Authorised
from dlcpd.daemon.peers.membership import Link, Membership
from dlcpd.daemon.peers.peer_messages import Goodbye
from dlcpd.daemon.sessions.admission import Admission, SessionSettings
from dlcpd.daemon.sessions.proof import Proof
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.daemon.sessions.table import SessionTable

SETTINGS = SessionSettings(
    host="here",
    engines_per_job=1,
    agreed={},
    max_sessions=2,
    max_arena_bytes=1 << 20,
    refuse_unproved=True,
)
JOIN = Join("job", 0, 1, 1 << 20, 1.0, [])
ELSEWHERE = Link(1, "there", "tcp://192.0.2.1:9", "k" * 40, 1, "")


class Client:
    """A connection of user `uid`."""

    def __init__(self, uid: int = 1) -> None:
        self.uid = uid

    def joined(self, session: int, arena_bytes: int, descriptors: list[int]) -> None:
        raise NotImplementedError

    def refused(self, error: DlcpError) -> None:
        raise NotImplementedError

    def lost(self, error: DlcpError) -> None:
        raise NotImplementedError


class Engines:
    """Three engines; `up` of them take new sessions."""

    def __init__(self, up: Sequence[int] = (0, 1, 2)) -> None:
        self.busy, self.up = False, up

    def __len__(self) -> int:
        return 3

    def choose(self, count: int, load: Counter[int]) -> tuple[int, ...]:
        return tuple(sorted(sorted(self.up, key=lambda engine: load[engine])[:count]))

    def conditions(self, engines: Sequence[int]) -> str:
        return f"engines {list(engines)} are down"


class Scene:
    """A host with a table and an admission."""

    def __init__(self) -> None:
        self.table, self.engines = SessionTable(), Engines()
        self.condition = Condition(0.0)
        self.admission = Admission(
            SETTINGS,
            self.table,
            self.engines,
            Authorised(None, ""),
            "tcp://192.0.2.7:9",
            condition=self.condition,
        )

    def add(self, job: str = "job", rank: int = 0, engines: tuple[int, ...] = (0,)) -> LocalSession:
        number = self.table.next_number()
        member = Membership(
            job=job,
            rank=rank,
            session=number,
            host="here",
            endpoints=[],
            agreed={},
            links={},
            seed=1,
            proof="",
        )
        session = LocalSession(number, member, Client(), 1 << 20, 1.0, Proof.HOST, engines=engines)
        self.table.add(session)
        return session


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- the table -------------------------------------------------------------------------


def test_a_session_is_found_by_number_and_name(scene: Scene) -> None:
    first, second = scene.add(rank=0), scene.add(rank=1)
    assert second.number > first.number
    assert scene.table.named("job", 1) is second
    assert scene.table.numbered(first.number) is first
    assert list(scene.table) == [first, second]
    scene.table.remove(first)
    assert first not in scene.table
    assert scene.table.named("job", 0) is None
    assert len(scene.table) == 1


def test_a_name_that_is_free_goes_to_the_next_session(scene: Scene) -> None:
    leaving = scene.add()
    scene.table.free_name(leaving)
    again = scene.add()
    assert scene.table.named("job", 0) is again
    assert leaving in scene.table
    scene.table.remove(leaving)
    assert scene.table.named("job", 0) is again


def test_a_message_goes_to_the_session_that_it_names_or_else_to_its_rank(scene: Scene) -> None:
    leaving = scene.add()
    scene.table.free_name(leaving)
    again = scene.add()
    message = Goodbye("job", 1, 0, 5, leaving.number, "session_closed", "the client ended")
    assert message.echo == leaving.number
    assert scene.table.addressed(message) is leaving
    assert scene.table.addressed(replace(message, echo=3)) is again
    assert scene.table.addressed(replace(message, job="another")) is None


# --- admission ---------------------------------------------------------------------------


def test_a_join_within_the_limits_is_accepted(scene: Scene) -> None:
    scene.admission.check(JOIN, Client())


def test_each_limit_refuses_by_name(scene: Scene) -> None:
    def refused(kind: type[DlcpError], text: str, request: Join = JOIN) -> None:
        with pytest.raises(kind, match=text):
            scene.admission.check(request, Client())

    refused(TooMany, "max_arena_bytes", replace(JOIN, arena_bytes=1 << 21))
    scene.add()
    refused(NotPermitted, "rank 0 of job 'job' has a session on here already")
    scene.engines.busy = True
    refused(TooMany, "is behind", replace(JOIN, rank=1))
    scene.engines.busy = False
    scene.add(rank=1)
    refused(TooMany, "serves 2 sessions", replace(JOIN, rank=2))
    scene.condition.draining = True
    refused(DaemonUnavailable, "is stopping")


def test_another_user_inherits_no_residuals(scene: Scene) -> None:
    former = scene.add(job="earlier")
    request = replace(JOIN, inherits=former.number)
    scene.admission.check(request, Client(uid=1))
    with pytest.raises(NotPermitted, match="belongs to another user"):
        scene.admission.check(request, Client(uid=2))


def test_a_job_keeps_its_engines_and_a_new_job_gets_the_emptiest(scene: Scene) -> None:
    former = scene.add(engines=(2,))
    assert scene.admission.engines_for(replace(JOIN, rank=1)) == (2,)
    assert scene.admission.engines_for(replace(JOIN, job="other")) == (0,)
    assert scene.admission.engines_for(replace(JOIN, job="x", inherits=former.number)) == (2,)
    scene.engines.up = ()
    with pytest.raises(DaemonUnavailable, match=r"engines \[0, 1, 2\] are down; join again later"):
        scene.admission.engines_for(replace(JOIN, job="other"))


def test_peers_on_other_hosts_need_a_proof(scene: Scene) -> None:
    with pytest.raises(NotAuthorised, match="unproved"):
        scene.admission.prove(JOIN, [ELSEWHERE])
    assert scene.admission.prove(replace(JOIN, proof="p"), [ELSEWHERE]) is Proof.SECRET
    assert scene.admission.prove(JOIN, []) is Proof.HOST
