"""Each line near QoS is read, of no matter, or refused: NVUE.

Lines are of the Cumulus Linux 5.x documentation, "Quality of Service" and "RDMA over Converged
Ethernet", and of the NVUE command reference.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.errors import BadState
from switchcfg.plan.account import UNREAD, counts
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.accounted import planned, refusal, wanted
from tests.switchcfg.test_captured import captured

PFC = (
    "nv set system hostname leaf\nnv set qos pfc default-global switch-priority 3\n"
    "nv set qos pfc default-global rx enable\nnv set qos pfc default-global tx enable\n"
)
TRUST = "nv set qos mapping default-global trust {}\n"
PCP = "nv set qos mapping default-global pcp 3 switch-priority 3\n"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (TRUST.format("l2") + PCP, "VLAN priority 3 goes to queue 3"),
        (TRUST.format("l2"), "VLAN priority 3 goes to queue 3"),
        (TRUST.format("both") + PCP, "VLAN priority 3 goes to queue 3"),
        ("", "by `trust l2`"),
        (TRUST.format("l2") + PCP.replace("pcp 3", "pcp 0-2,5"), "VLAN priority 0 goes to queue 3"),
        (
            TRUST.format("port") + "nv set qos mapping default-global port-default-sp 3\n",
            "every packet goes to queue 3",
        ),
    ],
)
def test_a_kept_queue_that_is_fed_by_vlan_priority_or_port_is_refused(more: str, says: str) -> None:
    said = refusal("nvue", PFC + more)
    assert "kept-pcp: leaf: " in said
    assert says in said


def test_where_code_points_are_trusted_it_is_kept_by_them() -> None:
    assert planned("nvue", PFC + TRUST.format("l3")).changes
    elsewhere = TRUST.format("port") + "nv set qos mapping default-global port-default-sp 1\n"
    assert planned("nvue", PFC + elsewhere).changes


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        ("qos remark default-global rewrite l3", "leaf"),
        ("qos remark default-global switch-priority 6 dscp 0", "leaf"),
        ("interface swp1-4 qos remark profile OUT", "swp1"),
        ("qos mapping default-global dscp ef switch-priority 3", "leaf"),
        ("qos congestion-control default-global traffic-class 3 min-threshold 40KB", "leaf"),
        ("qos traffic-pool default-lossless size 9", "leaf"),
        ("qos egress-scheduler default-global traffic-class 3 max-rate 9", "leaf"),
        ("qos advance-buffer-config default-global ingress-pool 1 size 9", "leaf"),
        ("interface swp2 qos frobnicate on", "swp2"),
        ("qos frobnicate", "leaf"),
    ],
)
def test_a_line_that_is_not_known_is_refused_by_itself(line: str, owner: str) -> None:
    text = f"nv set system hostname leaf\nnv set {line}\n"
    assert f'unread: {owner}: "nv set {line}"' in refusal("nvue", text)


@pytest.mark.parametrize(
    "line",
    [
        "qos remark OUT rewrite l3",
        "interface swp9 qos frobnicate on",
        "interface swp1 ip address 192.0.2.1/31",
        "interface swp1 link mtu 9216",
        "interface swp1 qos pfc-watchdog",
        "interface swp1 acl A inbound",
        "acl A rule 1 action permit",
        "acl B rule 1 action set dscp 3",
        "router bgp autonomous-system 65001",
    ],
)
def test_what_is_far_or_chooses_no_queue_is_of_no_matter(line: str) -> None:
    assert planned("nvue", f"nv set system hostname leaf\nnv set {line}\n").changes


def test_a_list_that_marks_is_refused_on_its_port() -> None:
    text = "nv set interface swp1 acl A inbound\nnv set acl A rule 1 action set dscp 3\n"
    assert 'unread: acl A: "nv set acl A rule 1 action set dscp 3"' in refusal("nvue", text)


def test_a_captured_switch_is_read_whole() -> None:
    made = planned("nvue", captured("nvue.roce").replace("swp1-2 qos cong", "swp7 qos cong"))
    assert made.read[0] == made.read[1] > 15


@pytest.mark.parametrize("platform", ["eos", "nvue"])
def test_pfc_of_priority_0_is_named(platform: str) -> None:
    row = '[[lossless]]\nname = "roce"\npriority = 0\ndscp = [24]\nshare = 10\n'
    [said] = [
        each
        for each in PLATFORMS[platform].render(*wanted(platform, "", row)).degraded
        if "priority 0" in each
    ]
    assert said.startswith("roce: priority 0 is that of frames without a VLAN tag")


def test_unread_lines_are_bounded() -> None:
    line = "nv set interface swp0-4095 qos frobnicate{}\n"
    with pytest.raises(BadState, match="more than 262144 values"):
        PLATFORMS["nvue"].read("".join(line.format(each) for each in range(65)))


@given(data=st.data())
def test_a_line_that_changes_is_read_so_or_refused(data: st.DataObject) -> None:
    kind = PLATFORMS["nvue"]
    found = captured("nvue.roce").splitlines()
    rows = [row for row in found if " qos " in row and "watchdog" not in row]
    at = data.draw(st.integers(0, len(rows) - 1))
    words = rows[at].split()
    where = data.draw(st.integers(3, len(words) - 1))
    new = data.draw(st.sampled_from(["pcp", "on", "7", "kbytes", "frobnicate", "dscp", "rx"]))
    if new == words[where] or words[where] == "enable":
        return
    changed = " ".join([*words[:where], new, *words[where + 1 :]])
    was = kind.read("\n".join(rows))
    read = kind.read("\n".join([*rows[:at], changed, *rows[at + 1 :]]))
    assert UNREAD in {place.kind for place in read} or dict(read) != dict(was)
    assert counts(read)[1] == counts(was)[1]
