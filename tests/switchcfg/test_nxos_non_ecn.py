"""NX-OS: what is sent as Not-ECT is dropped at thresholds of its own, where others are marked."""

from typing import Final

from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import plan, removal, reverse
from switchcfg.plan.queues import lay_out
from switchcfg.platforms.nxos.platform import ABLE, Nxos
from tests.switchcfg.test_captured import device

NXOS: Final = Nxos()
BARE: Final = "hostname leaf\ninterface Ethernet1/1\n"
MARKS: Final = "random-detect minimum-threshold 13107 bytes maximum-threshold 65536 bytes"
OWN: Final = "random-detect non-ecn minimum-threshold 26214 bytes maximum-threshold 104857 bytes"


def wanted(mark: str = "[0.1, 0.5]", drop: str = "[0.2, 0.8]") -> tuple[Intent, Device]:
    found = parse(
        'schema = 1\n[fabric]\nname = "lab"\n[queues]\nbuffer = "256KiB"\nrest = "back"\n'
        f"mark = {mark}\ndrop = [[1.0, 1.0], {drop}]\n"
        "[classes]\n"
        'control = { rank = 0, dscp = [48], ecn = ["ect0"], share = 0.5 }\n'
        'back = { rank = 1, dscp = [10, 14], ecn = ["ect0", "not-ect"], share = 0.5 }\n'
        '[[device]]\nname = "leaf"\nplatform = "nxos"\n'
        '[[device.ports]]\nnames = ["Ethernet1/1"]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def test_it_is_planned_read_back_changed_and_taken_back() -> None:
    of, had = wanted(), device("nxos", BARE)
    before = NXOS.read(had.says())
    made = plan(*of, NXOS, before)
    [step] = made.steps
    assert step.payload.count(f"    {MARKS} drop-probability 100 weight 0 ecn\n") == 2
    assert step.payload.count(f"    {OWN} drop-probability 100\n") == 1  # control has one rank
    had.do(step.payload)
    assert not plan(*of, NXOS, NXOS.read(had.says())).changes
    other = wanted(drop="[0.3, 0.8]")
    had.do(plan(*other, NXOS, NXOS.read(had.says())).steps[0].payload)
    assert not plan(*other, NXOS, NXOS.read(had.says())).changes
    had.do(removal(*other, NXOS, NXOS.read(had.says())).steps[0].payload)
    assert NXOS.read(had.says()) == before


def test_it_is_read_in_kilobytes_and_megabytes() -> None:
    line = "random-detect non-ecn minimum-threshold 26 kbytes maximum-threshold 1 mbytes"
    found = NXOS.read(
        f"{BARE}policy-map type queuing X\n  class type queuing c-out-8q-q7\n"
        f"    {line} drop-probability 90\n"
    )
    assert [value for place, value in found.items() if place.kind == "queue bare"] == [
        "26000 1000000 90"
    ]


def test_where_both_are_the_same_one_curve_does_both() -> None:
    """Its own line is then of no use, and not every chip may take it."""
    had = device("nxos", BARE)
    had.do(plan(*wanted(), NXOS, NXOS.read(had.says())).steps[0].payload)
    alike = plan(*wanted(drop="[0.1, 0.5]"), NXOS, NXOS.read(had.says()))
    assert f"no {OWN} drop-probability 100" in alike.steps[0].payload
    had.do(alike.steps[0].payload)
    assert "non-ecn" not in had.says()
    back = reverse(wanted()[0], alike, wanted()[1], NXOS, NXOS.read(had.says()))
    had.do(back.steps[0].payload)
    assert OWN in had.says()


def test_nothing_is_waived() -> None:
    intent, leaf = wanted()
    assert lay_out(intent, leaf.groups[0], ABLE).degraded == ()
    three = parse(
        'schema = 1\n[fabric]\nname = "lab"\n[[device]]\nname = "leaf"\nplatform = "nxos"\n'
        '[[device.ports]]\nnames = ["Ethernet1/1"]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    said = lay_out(three, three.devices[0].groups[0], ABLE).degraded
    assert said
    assert all("drop precedences 0 and 1 are treated alike" in each for each in said)
