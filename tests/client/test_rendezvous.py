"""Ranks find each other through a store; whoever is missing is named."""

import time
from typing import Any, cast

import pytest
from torch._C._distributed_c10d import HashStore, Store

from dlcp_client.job import transport_vote
from dlcp_client.job.rendezvous import Meeting, Member, introduction, refusal, roster, together
from dlcp_client.joining.torch_ranks import member_of
from dlcpd.contract.errors import (
    ArenaFull,
    BadConfig,
    BadMessage,
    DaemonUnavailable,
    DlcpError,
    NotPermitted,
    PeerLost,
)
from dlcpd.contract.messages import Join, Welcome

WELCOME = Welcome(1, "a", "tcp://192.0.2.1:5000", "k" * 40)
SOON = 0.05  # seconds; nothing waits for it to pass but tests of what is missing


def meetings(world: int, subject: str = "job", store: Store | None = None) -> list[Meeting]:
    shared = store or HashStore()
    return [Meeting(Member(shared, rank, world), subject) for rank in range(world)]


def soon() -> float:
    return time.monotonic() + SOON


def test_everybody_learns_what_everybody_said() -> None:
    ranks = meetings(3)
    for rank, meeting in enumerate(ranks):
        meeting.publish({"rank": rank})
    for meeting in ranks:
        assert meeting.gather(soon()) == [{"rank": 0}, {"rank": 1}, {"rank": 2}]


@pytest.mark.parametrize(
    ("absent", "text"), [([1], "rank 1 of 4"), ([0, 3], "ranks 0, 3 of 4"), ([], "")], ids=str
)
def test_missing_ranks_are_named(absent: list[int], text: str) -> None:
    ranks = meetings(4)
    for rank, meeting in enumerate(ranks):
        if rank not in absent:
            meeting.publish({})
    if not absent:
        assert ranks[0].gather(soon()) == [{}] * 4
        return
    with pytest.raises(PeerLost, match=f"s, and {text} ranks did not write"):
        ranks[2].gather(soon())


def test_many_missing_ranks_are_counted() -> None:
    with pytest.raises(PeerLost, match=r"ranks 0, 1, 2, .*, 15 and 24 more of 40 ranks"):
        meetings(40)[0].gather(soon())


def test_sessions_of_one_job_do_not_collide() -> None:
    store = HashStore()
    first, second = meetings(2, store=store), meetings(2, store=store)
    other = meetings(2, "vote", store)
    for number, ranks in enumerate((first, second, other)):
        for meeting in ranks:
            meeting.publish({"number": number})
    for number, ranks in enumerate((first, second, other)):
        assert ranks[0].gather(soon()) == [{"number": number}] * 2


@pytest.mark.parametrize("text", ["{", "[]", "7", "[" * 60_000, '{"peer": "\\ud800"}'],
                         ids=["cut", "list", "number", "depth", "half a pair"])  # fmt: skip
def test_what_is_no_object_is_refused(text: str) -> None:
    store = HashStore()
    ranks = meetings(2, store=store)
    ranks[0].publish({})
    store.set("dlcp/job/1/1", text)
    with pytest.raises(BadMessage, match="rank 1 published"):
        ranks[0].gather(soon())


def test_the_roster_is_what_join_takes() -> None:
    said = [introduction(WELCOME, "train"), introduction(WELCOME, "train")]
    job, rows = roster(said)
    assert job.startswith("train-")
    assert job == roster([said[0], introduction(WELCOME, "other")])[0]  # rank 0's counts
    assert rows == [(rank, "a", WELCOME.endpoint, WELCOME.public_key) for rank in range(2)]
    assert Join(job, 0, 2, 1 << 16, 1.0, rows).peers == rows


def test_two_jobs_of_one_name_have_two_names() -> None:
    names = {roster([introduction(WELCOME, "j" * 500)])[0] for _ in range(20)}
    assert len(names) == 20
    assert all(len(name) <= 128 for name in names)


def test_a_rank_without_a_daemon_says_so_to_all() -> None:
    said = [introduction(WELCOME, "j"), refusal(DaemonUnavailable("no daemon answers at /x"))]
    with pytest.raises(DaemonUnavailable, match=r"rank 1 failed to join: no daemon .* at /x"):
        roster(said)


@pytest.mark.parametrize("bad", [{}, {"job": "j", "peer": 7}, {"peer": []}])
def test_an_introduction_with_parts_missing_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(BadMessage):
        roster([bad])


@pytest.mark.parametrize(("rank", "world"), [(0, 0), (1, 1), (0, 257), (-1, 2), (2, 2)])
def test_a_place_is_in_a_world(rank: int, world: int) -> None:
    with pytest.raises(BadConfig, match="world"):
        Member(HashStore(), rank, world)


def test_without_a_process_group_the_error_says_what_to_do() -> None:
    with pytest.raises(BadConfig, match=r"init_process_group\(\) first"):
        member_of()


def vote(
    store: Store, errors: list[Any], fallbacks: list[bool], transport: str = "dlcp"
) -> list[Any]:
    """What each of two ranks gets out of a vote: a text, or an error. `transport`: of rank 0."""
    late = Meeting(Member(store, 1, 2), "vote")
    late.publish({"problem": str(errors[1] or ""), "fallback": fallbacks[1]})
    out: list[Any] = []
    options: dict[str, Any] = {"fallback": fallbacks[0], "transport": transport}
    try:
        out.append(transport_vote.hold(Member(store, 0, 2), errors[0], deadline=soon(), **options))
    except (PeerLost, NotPermitted, BadConfig) as exc:
        out.append(exc)
    return out


def test_all_well_is_an_empty_verdict() -> None:
    assert vote(HashStore(), [None, None], [False, False]) == [""]


@pytest.mark.parametrize("errors", [[None, NotPermitted("no")], [NotPermitted("no"), None]])
def test_one_ranks_trouble_is_everybodys_fallback(errors: list[Any]) -> None:
    [verdict] = vote(HashStore(), errors, [True, True])
    assert "cannot use dlcpd: no" in verdict


@pytest.mark.parametrize("fallbacks", [[False, False], [True, False], [False, True]])
def test_without_everybodys_consent_nobody_falls_back(fallbacks: list[bool]) -> None:
    [error] = vote(HashStore(), [NotPermitted("no"), None], fallbacks)
    assert isinstance(error, NotPermitted)
    [error] = vote(HashStore(), [None, NotPermitted("no")], fallbacks)
    assert isinstance(error, PeerLost)
    assert "rank 1 cannot use dlcpd: no" in str(error)


def test_ranks_that_ask_for_different_transports_are_told() -> None:
    told = "rank 1 has transport 'dlcp', and rank 0 has 'auto': give all ranks the same transport="
    [error] = vote(HashStore(), [None, None], [False, True], transport="auto")
    assert isinstance(error, BadConfig)
    assert str(error) == told
    assert vote(HashStore(), [None, None], [True, True], transport="auto") == [told]


def test_what_fails_on_one_rank_fails_on_all() -> None:
    store = HashStore()
    with pytest.raises(NotPermitted, match=r"^no$"), together(Member(store, 1, 2), "x", soon()):
        raise NotPermitted("no")
    ran = []
    with (
        pytest.raises(NotPermitted, match="rank 1 failed to join: no"),
        together(Member(store, 0, 2), "x", soon()),
    ):
        ran.append(0)
    assert ran == [0]


def test_what_all_ranks_did_is_done() -> None:
    store = HashStore()
    Meeting(Member(store, 1, 2), "x").publish({})
    with together(Member(store, 0, 2), "x", soon()):
        pass


def test_a_rank_that_never_did_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp_client.job.rendezvous.LATE", SOON)
    with (
        pytest.raises(PeerLost, match=r"x: rank 0 waited .* s, and rank 1 of 2"),
        together(Member(HashStore(), 0, 2), "x", soon()),
    ):
        pass


class _Impatient:
    """A store whose wait ends in vain, though all that was waited for is there by then."""

    def __init__(self, *, gone: bool) -> None:
        self._store, self._gone = HashStore(), gone

    def wait(self, *_: Any) -> None:
        raise RuntimeError("wait timeout")

    def check(self, keys: list[str]) -> bool:
        if self._gone:
            raise RuntimeError("connection reset")
        return bool(self._store.check(keys))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_who_came_at_the_last_moment_is_not_missed() -> None:
    ranks = meetings(2, store=cast(Store, _Impatient(gone=False)))
    for meeting in ranks:
        meeting.publish({})
    assert ranks[0].gather(soon()) == [{}] * 2


def test_a_store_that_is_gone_is_named() -> None:
    with pytest.raises(PeerLost, match=r"the job's store \(_Impatient\) does not answer"):
        meetings(2, store=cast(Store, _Impatient(gone=True)))[0].gather(soon())


def entered(ranks: list[Member], rank: int, error: DlcpError | None) -> None:
    """A rank's part in a block that all enter."""
    with together(ranks[rank], "block", soon()):
        if error is not None:
            raise error


def test_a_rank_that_fails_is_the_cause_of_what_others_see_of_it() -> None:
    """It leaves, and to them it is lost; why it left is what they can do something about."""
    store = HashStore()
    ranks = [Member(store, rank, 3) for rank in range(3)]
    with pytest.raises(ArenaFull, match="no room"):
        entered(ranks, 1, ArenaFull("no room"))
    for rank in (0, 2):
        with pytest.raises(ArenaFull, match="rank 1 failed to join: no room"):
            entered(ranks, rank, PeerLost("rank 1: the client ended"))


def test_a_rank_that_is_lost_without_a_word_is_lost() -> None:
    store = HashStore()
    ranks = [Member(store, rank, 3) for rank in range(3)]
    for rank in (0, 2):
        with pytest.raises(PeerLost, match="rank 1: the client ended"):
            entered(ranks, rank, PeerLost("rank 1: the client ended"))
