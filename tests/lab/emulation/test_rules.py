"""What tc and nft are told. No root needed; that they do it is in the tests marked netns."""

import re

import pytest

from dlcp_lab.emulation import Plan
from dlcp_lab.emulation.condition import Condition, LinkCut
from dlcp_lab.emulation.congestion import virtual_queues
from dlcp_lab.emulation.early_drop import definitions
from dlcp_lab.emulation.plan import FabricError
from dlcp_lab.emulation.queues import queue_lines, queues, thresholds
from dlcp_lab.emulation.rules import chain, table
from dlcp_lab.emulation.topology import directions
from dlcpd.contract.traffic import traffic_classes

CLASSES = Plan(classes=True, ecn_bytes=20_000)
DOWN = directions(Plan())["l0:h1"]
UP = directions(Plan())["h1:l0"]


def rules(condition: Condition, plan: Plan = Plan()) -> str:  # noqa: B008  # frozen
    return chain(plan, DOWN, condition)


def test_every_dscp_of_the_table_has_its_class_and_the_rest_the_last() -> None:
    lines = "\n".join(queue_lines(CLASSES, "h0", "1gbit"))
    for each in traffic_classes().values():
        for dscp in each.dscp:
            assert f"match ip dsfield {dscp << 2:#04x} 0xfc flowid 1:1{each.rank}" in lines
    assert "htb default 14" in lines
    assert "protocol arp prio 2 u32 match u32 0 0 flowid 1:10" in lines


def test_classes_are_guaranteed_next_to_nothing_and_may_have_everything() -> None:
    lines = queue_lines(CLASSES, "h0", "1gbit")
    shares = [line for line in lines if re.search(r"class .* prio", line)]
    assert [re.findall(r" prio (\d)", line)[0] for line in shares] == list("01234")
    assert all("rate 8kbit ceil 1gbit" in line for line in shares)


def test_what_is_served_later_has_less_room() -> None:
    limits = [queue.limit for queue in queues(CLASSES)]
    assert limits == sorted(set(limits), reverse=True)
    assert limits[0] == CLASSES.buffer_bytes


def test_without_classes_one_queue_takes_all() -> None:
    [queue] = queues(Plan())
    assert queue.limit == Plan().buffer_bytes
    assert set(queue.dropped_first) == {38, 30, 22, 14}
    assert set(queue.dropped_next) == {36, 28, 20, 12}
    assert not any("filter" in line for line in queue_lines(Plan(), "h0", "1gbit"))


def test_drop_precedence_0_is_never_dropped_early() -> None:
    protected = {each.dscp[0] for each in traffic_classes().values()}
    for virtual in virtual_queues(CLASSES):
        assert not protected & set(virtual.drops)


def test_the_droppable_meet_the_shorter_virtual_queue() -> None:
    sizes = {virtual.name: virtual.size for virtual in virtual_queues(CLASSES)}
    for queue in queues(CLASSES):
        assert sizes[f"over_{queue.name}_lower"] < sizes[f"over_{queue.name}_upper"] < queue.limit


def test_a_class_waits_behind_all_that_is_served_before_it() -> None:
    fed = [line for line in rules(Condition("1gbit"), CLASSES).splitlines() if "limit rate" in line]
    front = next(line for line in fed if "over_front_lower" in line)
    assert "{ 48, 34, 36, 38 }" in front
    bulk = next(line for line in fed if "over_bulk_lower" in line)
    assert "dscp" not in bulk  # whatever there is


def test_the_program_of_a_port_knows_each_queue_and_when_each_dscp_is_dropped() -> None:
    macros = dict(macro.split("=", 1) for macro in definitions(CLASSES, "8mbit"))
    assert macros["QUEUES"] == str(len(queues(CLASSES)))
    assert macros["BYTES_PER_SECOND"] == "980000ULL"
    numbers = list(map(int, re.findall(r"\d+", macros["PROFILES"])))
    profiles = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert len(profiles) == 64
    front = queues(CLASSES)[1]
    lower, upper = thresholds(CLASSES, front)
    assert [profiles[dscp] for dscp in front.dscps] == [(1, 0), (1, upper), (1, lower)]
    assert profiles[0] == (len(queues(CLASSES)) - 1, 0)  # no class of ours: last, never early


def test_what_drops_by_rank_is_one_of_two() -> None:
    with pytest.raises(FabricError, match="early_drop 'red' is not known: use bpf, nft or nothing"):
        Plan(early_drop="red")


@pytest.mark.parametrize(("plan", "way"), [(Plan(), DOWN), (CLASSES, UP)])
def test_nothing_is_marked_unasked_or_where_a_host_sends(plan: Plan, way: object) -> None:
    assert "ecn" not in chain(plan, way, Condition("1gbit"))  # type: ignore[arg-type]


def test_a_chain_is_replaced_in_one_transaction_and_its_counters_go_on() -> None:
    text = rules(Condition("1gbit", loss=0.25))
    assert text.count("flush chain netdev fabric out_h1") == 1
    assert "mod 1000000 < 250000 counter name lost_out_h1 drop" in text
    assert "counter lost_out_h1 { }" in table(Plan(), [DOWN])
    assert "counter lost_out_h1 { }" not in text


def test_only_ip_meets_the_faults() -> None:
    text = rules(Condition("1gbit", cut=LinkCut.SILENT))
    assert text.index("meta protocol != ip accept") < text.index("counter name cut_out_h1 drop")


def test_where_a_host_sends_the_leaf_takes_what_is_lost() -> None:
    text = chain(Plan(), UP, Condition(loss=0.5))
    assert 'hook ingress device "h1"' in text
    assert "lost_in_h1" in text


@pytest.mark.parametrize("wrong", [{"loss": 1.0}, {"rate": "slow"}, {"burst_length": 0.0}])
def test_a_condition_is_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(FabricError):
        Condition(**wrong)  # type: ignore[arg-type]
