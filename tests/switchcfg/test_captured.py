"""Configurations in the shape in which switches print them: ranges, lists, nothing of defaults.

`captured/`: eos.roce is a leaf of Arista's RoCE guides, as AVD's molecule configurations print
one (qos.md). nxos.roce is of the Nexus 9000 QoS guide 10.x, "Priority Flow Control" and "Queuing".
nvue.roce is of Cumulus Linux 5.x, "Quality of Service", with profiles of its own; nvue.mode of
"RDMA over Converged Ethernet". Whatever a plan says, no line of theirs may go.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from switchcfg.errors import BadState, CannotExpress, Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import Plan, plan, removal
from switchcfg.plan.state import Place, after
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.name_ranges import MOST, members
from tests.switchcfg import printed
from tests.switchcfg.cli_device import Lines
from tests.switchcfg.golden import DEVICES, PAIRS, on_every_platform
from tests.switchcfg.intents import EXAMPLES
from tests.switchcfg.test_platforms import CommandLines, FlatLines

CAPTURED: Final = Path(__file__).parent / "captured"
PRINTED: Final[dict[str, Callable[[str], str]]] = {"eos": printed.eos, "nvue": printed.nvue}
# Classes that send no code point that RoCE uses there
CLASSES: Final = (
    "[classes]\n"
    'control = { rank = 0, dscp = [56], ecn = ["ect0"] }\n'
    'front = { rank = 1, dscp = [18, 22], ecn = ["ect0", "not-ect"] }\n'
    'back = { rank = 2, dscp = [10, 14], ecn = ["ect0", "not-ect"] }\n'
    '[queues]\nrest = "back"\ndrop = [[1.0, 1.0], [0.2, 0.5]]\n'
)


def captured(name: str) -> str:
    return (CAPTURED / f"{name}.txt").read_text(encoding="utf-8")


def wanted(platform: str, port: str, keep: str = "queues = [3]") -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{CLASSES}[keep]\n{keep}\n[[device]]\nname = "leaf"\n'
        f'platform = "{platform}"\n[[device.ports]]\nnames = ["{port}"]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def planned(platform: str, port: str, keep: str = "queues = [3]", text: str = "") -> Plan:
    kind = PLATFORMS[platform]
    text = text or captured(f"{platform}.roce")
    return plan(*wanted(platform, port, keep), kind, kind.read(text))


def device(platform: str, text: str) -> CommandLines | FlatLines:
    """A switch with a configuration."""
    if platform == "nvue":
        flat = FlatLines("nv set", "nv unset")
        flat.have = {line.removeprefix("nv set ") for line in one_by_one(text)}
        return flat
    lines = CommandLines()
    at = [(-1, lines.root)]
    for line in eos_one_by_one(text):
        column = len(line) - len(line.lstrip())
        while at[-1][0] >= column:
            at.pop()
        at.append((column, at[-1][1].inner.setdefault(line.strip(), Lines())))
    return lines


def eos_one_by_one(text: str) -> Iterator[str]:
    """EOS's lines with a code point each, as it keeps them itself."""
    for line in text.splitlines():
        found = re.fullmatch(r"qos map dscp ([\d ]+) (to .*)", line)
        if found:
            yield from (f"qos map dscp {each} {found[2]}" for each in found[1].split())
        elif line.strip(" !"):
            yield line


def one_by_one(text: str) -> list[str]:
    """NVUE's lines with a number each, as it keeps them itself."""
    out: list[str] = []
    for line in text.splitlines():
        words = line.split()
        many = next((at for at, w in enumerate(words) if "," in w or w[:4] == "swp1"), None)
        if many is None:
            out.append(line)
            continue
        out += (" ".join([*words[:many], e, *words[many + 1 :]]) for e in members(words[many]))
    return out


# --- read as printed -------------------------------------------------------------------


@pytest.mark.parametrize(("example", "platform"), [pair for pair in PAIRS if pair[1] in PRINTED])
def test_a_switch_that_has_ours_needs_nothing_however_it_prints_it(
    example: str, platform: str
) -> None:
    kind, intent, leaf = PLATFORMS[platform], on_every_platform(example), DEVICES[platform]
    head = {
        "eos": "hostname leaf\ninterface Ethernet1/1\ninterface Ethernet2/1\n",
        "nvue": "nv set interface swp1-2,32 type swp\n",
    }[platform]
    had = device(platform, head)
    for step in plan(intent, leaf, kind, kind.read(head)).steps:
        had.do(step.payload)
    text = PRINTED[platform](had.says())
    assert len(text.splitlines()) < len(had.says().splitlines())
    assert not plan(intent, leaf, kind, kind.read(text)).changes


def test_eos_prints_lists_and_leaves_out_defaults() -> None:
    read = PLATFORMS["eos"].read(captured("eos.roce"))
    assert [read[Place("dscp", each, "")] for each in ("24", "34", "46")] == ["3", "3", "3"]
    # What it does not print: the first codes go to class 1, the second to 0.
    assert [read[Place("dscp", each, "")] for each in ("0", "8", "63")] == ["1", "0", "7"]
    assert read[Place("traffic-class", "5", "")] == "5"
    assert read[Place("queue ecn", "ROCE-LEAF|3", "")] == "256 512 100 0"  # without its weight
    assert Place("queue round robin", "ROCE-LEAF|3", "") in read
    ports = {place.name for place in read if place.kind == "port"}
    assert ports == {"Ethernet1", "Ethernet2", "Ethernet3"}


@pytest.mark.parametrize("say", ["", "      priority strict\n"])
def test_a_strict_queue_may_say_so_or_not(say: str) -> None:
    text = f"qos profile X\n   uc-tx-queue 7\n{say}"
    assert not [p for p in PLATFORMS["eos"].read(text) if p.kind.startswith("queue")]


def test_a_queue_of_ours_that_somebody_made_round_robin_is_strict_again() -> None:
    kind = PLATFORMS["eos"]
    text = "interface Ethernet9\nqos profile DLCP\n   uc-tx-queue 7\n      no priority\n"
    told = planned("eos", "Ethernet9", text=text).steps[0].payload
    assert "   uc-tx-queue 7\n      priority strict\n" in told
    assert kind.read(text)


def test_nvue_prints_ranges() -> None:
    read = PLATFORMS["nvue"].read(captured("nvue.roce"))
    bound = {p.name for p in read if p.kind == "interface pfc"}
    assert bound == {"swp1", "swp2", "swp32"}
    points = {p.name for p in read if p.kind == "mapping dscp"}
    assert points == {"3", "24", "25"}
    assert read[Place("curve ecn", "default-global|5", "")] == "enable"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0 1 2 9", "0 1 2 9"),
        ("0-3,7", "0 1 2 3 7"),
        ("swp1-2,32", "swp1 swp2 swp32"),
        ("swp1-swp3,swp6", "swp1 swp2 swp3 swp6"),
        ("swp1s0-1,3", "swp1s0 swp1s1 swp1s3"),
        ("swp1-2s0-1", "swp1s0 swp1s1 swp2s0 swp2s1"),
        ("eth0,swp19-20", "eth0 swp19 swp20"),
        ("lo", "lo"),
    ],
)
def test_lists_and_ranges(text: str, names: str) -> None:
    assert members(text) == names.split()


@pytest.mark.parametrize("text", ["0-999999999", "7-3", f"0-{MOST}", "0-4095,0-1", "1-99s1-99"])
def test_no_range_is_longer_than_a_switch(text: str) -> None:
    with pytest.raises(BadState, match="not a range of at most 4096"):
        members(text)


def test_no_line_means_more_than_a_switch_has() -> None:
    many = "nv set qos congestion-control X traffic-class 0-4095 ecn enable\n"
    assert len(PLATFORMS["nvue"].read(many)) == MOST
    with pytest.raises(BadState, match="more than"):
        PLATFORMS["nvue"].read("".join(many.replace("X", f"X{each}") for each in range(65)))


def test_one_port_of_a_range_is_unset_alone() -> None:
    """The range as a whole would take the profile off ports that ours has never been on."""
    kind = PLATFORMS["nvue"]
    text = "nv set interface swp1-2,32 qos congestion-control profile DLCP\n"
    intent, leaf = wanted("nvue", "swp2")
    told = plan(intent, leaf, kind, kind.read(text)).steps[0].payload
    unset = [line for line in told.splitlines() if line.startswith("nv unset interface")]
    stem = "nv unset interface {} qos congestion-control profile"
    assert unset == [stem.format("swp32"), stem.format("swp1")]


def test_nxos_prints_ranges_of_code_points_and_other_units() -> None:
    read = PLATFORMS["nxos"].read(captured("nxos.roce"))
    assert read[Place("all match", "ROCE-DATA", "")] == "24,25,26"
    assert {p.name for p in read if p.kind == "port"} == {f"Ethernet1/{n}" for n in (1, 2, 3)}
    several = "match dscp 24-26\n  match dscp 9,af11\n  match dscp 8"
    read = PLATFORMS["nxos"].read(captured("nxos.roce").replace("match dscp 24-26", several))
    assert read[Place("all match", "ROCE-DATA", "")] == "8,9,24,25,26,af11"
    marks = read[Place("queue detect", "ROCE-EGRESS|c-out-8q-q3", "")]
    assert marks == "150000 3000000 7 0 ecn"


# --- RoCE stays -------------------------------------------------------------------------


def refusal(platform: str, port: str, keep: str = "queues = [3]", text: str = "") -> str:
    with pytest.raises(Refused) as caught:
        planned(platform, port, keep, text)
    return str(caught.value)


ROCE: Final = {
    "eos": ("Ethernet2", "queues = [3]"),
    "nvue": ("swp32", "queues = [3]"),
}


@pytest.mark.parametrize("platform", ["eos", "nvue"])
def test_beside_roce_no_line_of_it_goes(platform: str) -> None:
    """Ports that have flow control of their own, and no profile that ours would replace."""
    before = captured(f"{platform}.roce")
    had = device(platform, before)
    lines = set(had.says().splitlines())
    mine = ("qos map dscp", "nv set qos mapping default-global dscp")
    theirs = {line for line in lines if not line.strip().startswith(mine)}
    port, keep = ROCE[platform]
    made = planned(platform, port, keep)
    assert made.changes
    for step in made.steps:
        had.do(step.payload)
    assert theirs <= set(had.says().splitlines())
    kind = PLATFORMS[platform]
    was, now = kind.read(before), kind.read(had.says())
    points = {p: v for p, v in was.items() if p.kind in ("dscp", "mapping dscp") and v == "3"}
    assert points
    assert {place: now[place] for place in points} == points  # what goes to queue 3 still does
    assert not plan(*wanted(platform, port, keep), kind, now).changes
    undo = removal(*wanted(platform, port, keep), kind, now)
    for step in undo.steps:
        had.do(step.payload)
    assert lines <= set(had.says().splitlines())
    assert "DLCP" not in had.says()


def test_marks_of_a_kept_queue_go_into_our_profile_on_nvue() -> None:
    """swp32 marks by default-global, which does not count where a port has a profile."""
    told = planned("nvue", "swp32").steps[0].payload
    assert "nv set qos congestion-control DLCP traffic-class 3 ecn enable\n" in told
    assert "nv set qos congestion-control DLCP traffic-class 3 max-threshold 200000\n" in told
    assert "DLCP traffic-class 5 max-threshold 200000" not in told  # that queue is ours now
    assert "DLCP traffic-class 3 min-threshold" not in told  # of a profile that swp32 has not
    keep = 'queues = [3]\nreplaces = ["roce-ecn"]'
    told = planned("nvue", "swp1", keep).steps[0].payload
    assert "nv set qos congestion-control DLCP traffic-class 3 min-threshold 40000\n" in told
    assert "pfc" not in told


def test_two_profiles_of_others_do_not_fit_into_one_of_ours() -> None:
    text = captured("nvue.roce")
    keep = 'queues = [3]\nreplaces = ["roce-ecn"]'
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{CLASSES}[keep]\n{keep}\n[[device]]\nname = "leaf"\n'
        'platform = "nvue"\n[[device.ports]]\nnames = ["swp1", "swp32"]\nrate = "100Gbit"\n',
        "x",
    )
    kind = PLATFORMS["nvue"]
    other = text + "nv set qos congestion-control default-global traffic-class 3 probability 9\n"
    with pytest.raises(Refused, match="give swp32 its own `group`"):
        plan(found, found.device("leaf"), kind, kind.read(other))


@pytest.mark.parametrize(
    ("platform", "port", "keep", "says"),
    [
        ("eos", "Ethernet1", "", "lossless: Ethernet1 queue 3 has PFC"),
        ("eos", "Ethernet2", "", "lossless: Ethernet2 queue 3 has PFC"),
        ("eos", "Ethernet1", "queues = [3]", "kept: Ethernet1 has 'ROCE-LEAF', and the plan would"),
        (
            "eos", "Ethernet1", 'queues = [3]\nreplaces = ["ROCE-LEAF"]',
            "kept: Ethernet1 has 'ROCE-LEAF', and the plan would replace it and lose flow control",
        ),
        ("eos", "Ethernet9", "queues = [3]",
         "port: leaf has no port Ethernet9; its ports are Ethernet1, Ethernet2, Ethernet3 ..."),
        ("nxos", "Ethernet1/1", "", "lossless: Ethernet1/1 queue 3 has PFC"),
        ("nxos", "Ethernet1/3", "", "lossless: Ethernet1/3 queue 3 has PFC"),
        ("nxos", "Ethernet1/1", "queues = [3]", "kept: Ethernet1/1 has 'ROCE-INGRESS'"),
        # The queuing policy is the system's: a port's own takes its place.
        ("nxos", "Ethernet1/2", "queues = [3]", "kept: Ethernet1/2 has 'ROCE-EGRESS'"),
        (
            "nxos", "Ethernet1/2", 'queues = [3]\nreplaces = ["ROCE-EGRESS"]',
            "kept: Ethernet1/2 has 'ROCE-EGRESS', and the plan would replace it and lose ECN in",
        ),
        (
            "nxos", "Ethernet1/1", 'queues = [3]\nreplaces = ["ROCE-INGRESS", "ROCE-EGRESS"]',
            "kept: Ethernet1/1 has 'ROCE-INGRESS', and the plan would replace it and lose code",
        ),
        ("nxos", "Ethernet1/9", "queues = [3]", "port: leaf has no port Ethernet1/9"),
        ("nvue", "swp32", "", "lossless: swp32 queue 3 has PFC"),
        ("nvue", "swp1", "queues = [3]", "kept: swp1 has 'roce-ecn'"),
    ],
)  # fmt: skip
def test_roce_is_refused_by_name(platform: str, port: str, keep: str, says: str) -> None:
    assert says in refusal(platform, port, keep)


def test_the_roce_mode_of_nvue_is_refused_whatever_is_kept() -> None:
    said = refusal("nvue", "swp1", text=captured("nvue.mode"))
    assert "roce: leaf has `nv set qos roce`, which makes its own default-global" in said
    off = captured("nvue.mode").replace("enable on", "enable off")
    assert planned("nvue", "swp1", text=off).changes


def test_a_map_of_the_whole_switch_leaves_flow_control_of_other_ports_alone_on_nvue() -> None:
    assert "kept-treatment: swp1: DSCP 3, 24-31: queue: 3 -> 5" in refusal("nvue", "swp4", "")
    assert planned("nvue", "swp4").changes  # with queue 3 in [keep]


def test_flow_control_is_on_the_queue_that_its_priority_goes_to() -> None:
    eos = captured("eos.roce") + "qos map traffic-class 3 to tx-queue 5\n"
    assert "lossless: Ethernet2 queue 5 has PFC" in refusal("eos", "Ethernet2", text=eos)
    mapping = "nv set qos egress-queue-mapping default-global switch-priority 3 traffic-class 5\n"
    nvue = captured("nvue.roce") + mapping
    assert "lossless: swp32 queue 5 has PFC" in refusal("nvue", "swp32", text=nvue)


def test_without_ecn_nothing_of_kept_queues_is_taken_along_on_nvue() -> None:
    """Ours binds no profile then, so the port's own goes on."""
    found = parse(
        'schema = 1\n[fabric]\nname = "lab"\n[queues]\necn = false\n[keep]\nqueues = [3]\n'
        '[[device]]\nname = "leaf"\nplatform = "nvue"\n[[device.ports]]\nnames = ["swp4"]\n'
        'rate = "100Gbit"\n[classes]\nonly = { rank = 0, dscp = [10], ecn = ["not-ect"] }\n',
        "x",
    )
    kind = PLATFORMS["nvue"]
    made = plan(found, found.device("leaf"), kind, kind.read(captured("nvue.roce")))
    assert "congestion-control" not in made.steps[0].payload


NXOS: Final = captured("nxos.roce")
NO_ECN: Final = "\n".join(line for line in NXOS.splitlines() if "random-detect" not in line) + "\n"
EGRESS: Final = 'replaces = ["ROCE-EGRESS"]'
BOTH: Final = 'queues = [3]\nreplaces = ["ROCE-INGRESS", "ROCE-EGRESS"]'
POINTS: Final = "\n[keep.dscp]\n24 = 3\n25 = 3\n26 = 3"


@pytest.mark.parametrize(
    ("port", "keep", "text"),
    [
        ("Ethernet1/2", EGRESS, NXOS),  # its flow control is off
        ("Ethernet1/3", EGRESS, NXOS.replace("  service-policy type network-qos ROCE-", "  ! ")),
        ("Ethernet1/3", "queues = [3]", NO_ECN.replace("output ROCE-EGRESS", "output default-8q")),
    ],
)
def test_what_is_no_flow_control_is_planned_on_nxos(port: str, keep: str, text: str) -> None:
    assert planned("nxos", port, keep, text).changes


def test_code_points_that_the_intent_keeps_go_on_to_their_queue_on_nxos() -> None:
    told = planned("nxos", "Ethernet1/1", BOTH + POINTS, NO_ECN).steps[0].payload
    assert "class-map type qos match-any DLCP-Q3\n  match dscp 24,25,26\n" in told
    assert "network-qos" not in told
    assert "priority-flow-control" not in told


@pytest.mark.parametrize(
    ("keep", "old", "new", "says"),
    [
        ("", "class type network-qos c-8q-nq3", "class type network-qos RDMA", "queue 3 has PFC"),
        (
            "", "class type network-qos c-8q-nq3",
            "class type network-qos RDMA\n    pause no-drop\n"
            "class-map type network-qos RDMA\n  match qos-group 5\n"
            "policy-map type network-qos ROCE-NETWORK-QOS\n  class type network-qos RDMA",
            "queue 5 has PFC",
        ),
        (BOTH + POINTS, "bandwidth remaining percent 60",
         "random-detect threshold burst-optimized ecn", "the plan would replace it and lose ECN"),
        (BOTH + "\n[keep.dscp]\n3 = 3", "match dscp 24-26", "match cos 3", "CoS 3 in kept queue 3"),
        (BOTH + POINTS, "match dscp 24-26", "match dscp 24-27", "code point 27 in kept queue 3"),
        (BOTH + POINTS, "match dscp 24-26", "match dscp 27\n  match dscp 24-26",
         "code point 27 in kept queue 3"),
        (BOTH + "\n[keep.dscp]\n3 = 3", "match dscp 24-26", "match cos 2-3\n  match cos 5",
         "CoS 2 in kept queue 3: name the port"),
    ],
)  # fmt: skip
def test_what_others_send_to_kept_queues_is_refused_on_nxos(
    keep: str, old: str, new: str, says: str
) -> None:
    assert old in NO_ECN
    assert says in refusal("nxos", "Ethernet1/1", keep, NO_ECN.replace(old, new))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("interface swp1-4 qos mapping profile customer1", "swp4 has 'customer1' (mapping)"),
        ("interface swp1-4 qos egress-scheduler profile s", "swp4 has 's' (scheduler)"),
        ("interface swp1-4 qos link-pause profile p", "swp4 has 'p' (pause), which pauses all"),
        ("qos egress-queue-mapping default-global switch-priority 4-5 traffic-class 3",
         "kept-tc: leaf: switch priority 5 goes to queue 3"),
        ("qos pfc default-global switch-priority 4", "lossless: swp4 queue 4 has PFC"),
    ],
)  # fmt: skip
def test_what_counts_more_than_ours_on_nvue_is_refused(line: str, says: str) -> None:
    assert says in refusal("nvue", "swp4", text=f"{captured('nvue.roce')}nv set {line}\n")


def test_code_points_that_nobody_set_are_kept_where_the_queue_is_in_use() -> None:
    """EOS sends 26 to queue 3 by default. With PFC there it is RoCE's, else it is free."""
    intent = parse(EXAMPLES["brownfield"], "x")
    leaf, kind = intent.device("leaf-eos"), PLATFORMS["eos"]
    bare = "hostname leaf\ninterface Ethernet1/1\ninterface Ethernet2/1\ninterface Ethernet5/1\n"
    made = plan(intent, leaf, kind, kind.read(bare))
    changed = {change.place.name for change in made.changes if change.place.kind == "dscp"}
    assert "26" in changed
    assert not {"24", "25", "32"} & changed  # no class sends these, so they stay where they are
    roce = f"{bare}   priority-flow-control on\n   priority-flow-control priority 3 no-drop\n"
    with pytest.raises(Refused, match="kept-dscp: leaf-eos: code point 26 goes to queue 3 today"):
        plan(intent, leaf, kind, kind.read(roce))
    marks = f"{bare}qos profile X\n   uc-tx-queue 3\n      random-detect ecn minimum-threshold 9"
    marks += " kbytes maximum-threshold 99 kbytes\n"
    with pytest.raises(Refused, match="kept-dscp: leaf-eos: code point 26"):
        plan(intent, leaf, kind, kind.read(marks))


def test_nvue_looks_at_code_points_by_default_where_it_trusts_them() -> None:
    text = captured("nvue.roce").replace(
        "dscp 3,24-25 switch-priority 3", "dscp 3 switch-priority 0"
    )
    told = planned("nvue", "swp32", text=text).steps[0].payload
    assert "dscp 24 switch-priority 3\n" in told  # where it goes by default, said as a line of ours
    untrusted = text.replace("trust l3", "trust l2").replace("qos pfc roce-pfc switch", "! pfc")
    told = planned("nvue", "swp32", text=untrusted.replace("nv set !", "#")).steps[0].payload
    assert "dscp 24 switch-priority 3\n" not in told


# --- removal ----------------------------------------------------------------------------


@pytest.mark.parametrize(("example", "platform"), [pair for pair in PAIRS if pair[1] in PRINTED])
def test_a_removal_leaves_nothing_of_ours_on_the_whole_switch(example: str, platform: str) -> None:
    kind, intent, leaf = PLATFORMS[platform], on_every_platform(example), DEVICES[platform]
    head = {
        "eos": "hostname leaf\ninterface Ethernet1/1\ninterface Ethernet2/1\n",
        "nvue": "nv set system hostname leaf\n",
    }[platform]
    before = kind.read(head)
    made = plan(intent, leaf, kind, before)
    gone = removal(intent, leaf, kind, after(before, made.changes))
    left = after(after(before, made.changes), gone.changes)
    if not intent.keep.dscp:
        assert left == before
        assert not gone.degraded
    assert not removal(intent, leaf, kind, left).changes


def test_a_removal_leaves_what_somebody_else_set_and_names_it() -> None:
    kind, intent, leaf = PLATFORMS["eos"], on_every_platform("minimal"), DEVICES["eos"]
    before = kind.read("interface Ethernet1/1\ninterface Ethernet2/1\n")
    there = after(before, plan(intent, leaf, kind, before).changes)
    there[Place("dscp", "46", "")] = "2"
    gone = removal(intent, leaf, kind, there)
    assert after(there, gone.changes) == {**before, Place("dscp", "46", ""): "2"}
    assert gone.degraded == ("stays, because it is kept or differs from the intent: dscp 46 = 2",)


def test_a_removal_leaves_what_is_kept() -> None:
    intent, leaf = wanted("nvue", "swp32", "queues = [3]\n[keep.dscp]\n26 = 3")
    kind = PLATFORMS["nvue"]
    before = kind.read(
        captured("nvue.roce") + "nv set qos mapping default-global dscp 26 switch-priority 3\n"
    )
    there = after(before, plan(intent, leaf, kind, before).changes)
    gone = removal(intent, leaf, kind, there)
    left = after(there, gone.changes)
    assert {place: left.get(place) for place in before} == before
    (said,) = gone.degraded
    assert said.startswith(
        "stays, because it is kept or differs from the intent: mapping trust = l3; mapping "
    )
    assert "dscp 26" not in said  # the intent itself says that this one is kept


def test_an_intent_that_leaves_no_queue_has_nothing_to_give_back() -> None:
    intent, leaf = wanted("eos", "Ethernet3", f"queues = {list(range(8))}")
    kind = PLATFORMS["eos"]
    present = kind.read(captured("eos.roce"))
    assert not removal(intent, leaf, kind, present).changes
    with pytest.raises(CannotExpress, match="use every queue"):
        plan(intent, leaf, kind, present)
