"""Groups over real daemons, a process for each rank, beside Gloo."""

from pathlib import Path

import pytest

from dlcpd.schedules.catalog import CATALOG
from dlcpd.schedules.derive import FOREST
from tests.client import group_mistakes, group_ranks
from tests.client.test_ddp import on_hosts

WORLDS = pytest.mark.parametrize("world", [2, 3])


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("arena", [True, False], ids=["arena", "ordinary"])
def test_every_method_gives_what_gloo_gives(tmp_path: Path, world: int, arena: bool) -> None:
    # ordinary tensors go through the arena as well
    types = group_ranks.few_types if arena else group_ranks.every_type
    found = on_hosts(types, tmp_path, world, arena, world=world)
    assert found == [[]] * world


def test_a_broadcast_copies_each_tensor_once(tmp_path: Path) -> None:
    assert on_hosts(group_ranks.copies_of_a_broadcast, tmp_path) == [[]] * 2


def test_an_all_gather_does_not_copy_a_part_that_is_in_its_place(tmp_path: Path) -> None:
    assert on_hosts(group_ranks.own_part_of_an_all_gather, tmp_path) == [[]] * 2


def test_groups_of_some_ranks_and_in_other_orders(tmp_path: Path) -> None:
    assert on_hosts(group_ranks.subgroups, tmp_path, world=3) == [[]] * 3


@WORLDS
def test_groups_and_threads_do_not_wait_for_each_other(tmp_path: Path, world: int) -> None:
    assert on_hosts(group_ranks.in_flight, tmp_path, world, world=world) == [[]] * world


@WORLDS
def test_a_send_waits_for_no_receiver(tmp_path: Path, world: int) -> None:
    assert on_hosts(group_ranks.send_first, tmp_path, world, world=world) == [[]] * world


@WORLDS
def test_a_receiver_of_any_source_learns_it(tmp_path: Path, world: int) -> None:
    assert on_hosts(group_ranks.any_source, tmp_path, world, world=world) == [[]] * world


@WORLDS
def test_a_barrier_holds_until_all_came(tmp_path: Path, world: int) -> None:
    assert on_hosts(group_ranks.barriers, tmp_path, world, world=world) == [[]] * world


@WORLDS
def test_every_schedule_of_all_reduce(tmp_path: Path, world: int) -> None:
    names = [name for name in CATALOG["all_reduce"] if name != FOREST]  # see test_planned.py
    found = on_hosts(group_ranks.schedules, tmp_path, world, names, world=world)
    assert found == [[]] * world


def test_a_mistake_is_one_clear_error_and_the_session_goes_on(tmp_path: Path) -> None:
    assert on_hosts(group_mistakes.local, tmp_path, 2) == [[]] * 2


def test_a_closed_group_takes_nothing_and_the_others_go_on(tmp_path: Path) -> None:
    assert on_hosts(group_mistakes.closed, tmp_path, 2) == [[]] * 2


def test_members_that_disagree_on_the_ranks_of_a_group_fail_by_name(tmp_path: Path) -> None:
    assert on_hosts(group_mistakes.disagreement, tmp_path, 3, world=3) == [[]] * 3
