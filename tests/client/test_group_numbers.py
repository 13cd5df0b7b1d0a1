"""Members of a group draw and read its number in the job's store."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import HashStore

from dlcp_client.job import group_numbers
from dlcp_client.job.group_numbers import GroupNumbers
from dlcpd.contract.errors import BadConfig, PeerLost, TooMany

TIMEOUT = 30.0  # seconds; never waited for when all is well


def members(world: int, job: str = "job", store: HashStore | None = None) -> list[GroupNumbers]:
    shared = HashStore() if store is None else store
    return [GroupNumbers(shared, job, rank) for rank in range(world)]


def numbers(of: list[GroupNumbers], ranks: list[int], name: str = "") -> set[int]:
    """What the members of one group get."""
    return {of[rank].agree(ranks, name, TIMEOUT).number for rank in ranks}


def test_members_get_one_number_and_other_groups_another() -> None:
    job = members(4)
    drawn = [
        numbers(job, ranks, name)
        for ranks, name in [([0, 1], ""), ([1, 0], ""), ([0, 1], "other"), ([2, 3], ""), ([3], "")]
    ]
    assert all(len(of_one) == 1 for of_one in drawn)
    assert set().union(*drawn) == {1, 2, 3, 4, 5}


def test_the_same_ranks_and_name_again_are_a_new_group() -> None:
    job = members(2)
    assert [numbers(job, [0, 1], "g") for _ in range(3)] == [{1}, {2}, {3}]


def test_members_may_make_different_groups_in_different_order() -> None:
    first, second = members(2)
    a, b = first.agree([0, 1], "a", TIMEOUT), first.agree([0, 1], "b", TIMEOUT)
    assert second.agree([0, 1], "b", TIMEOUT) == b != a
    assert second.agree([0, 1], "a", TIMEOUT) == a


def test_who_comes_early_waits_for_the_first_member() -> None:
    first, second = members(2)
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(second.agree, [0, 1], "", TIMEOUT)
        assert first.agree([0, 1], "", TIMEOUT) == early.result(TIMEOUT) == (1, "")


def test_jobs_that_share_a_store_do_not_share_numbers() -> None:
    store = HashStore()
    assert numbers(members(2, "job a", store), [0, 1]) == {1}
    assert numbers(members(2, "job b", store), [0, 1]) == {1}


def test_a_first_member_that_does_not_come_is_named() -> None:
    with pytest.raises(PeerLost, match=r"group pipe: rank 1 waited .* s for rank 2 to create"):
        members(3)[1].agree([2, 1], "pipe", 0.01)
    with pytest.raises(PeerLost, match=r"group \[2, 1\]: rank 1"):
        members(3)[1].agree([2, 1], "", 0.01)


def test_without_a_store_there_are_no_groups() -> None:
    with pytest.raises(BadConfig, match="without a store"):
        GroupNumbers(None, "job", 0).agree([0, 1], "", TIMEOUT)


def test_numbers_end_with_those_of_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_numbers, "PROBES", 3)
    job = members(2)
    assert [numbers(job, [0, 1]) for _ in range(2)] == [{1}, {2}]
    for member in job:
        with pytest.raises(TooMany, match="a session has at most 2 groups; connect again"):
            member.agree([0, 1], "", TIMEOUT)
