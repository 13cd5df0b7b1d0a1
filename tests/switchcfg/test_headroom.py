"""Headroom of lossless queues: bytes by cable, speed and frame, against configured buffers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.errors import BadIntent
from switchcfg.intent.intent import parse
from switchcfg.model.headroom import Headroom, warnings
from switchcfg.model.known import model_of
from switchcfg.plan.plan import plan
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.accounted import CLASSES, PORTS, wanted
from tests.switchcfg.stock import sonic_roce, sonic_text
from tests.switchcfg.test_accounted_lines import nxos

G = 10**9
PROFILE = "pg_lossless_100000_40m_profile"


@pytest.mark.parametrize(
    ("rate", "metres", "least", "quanta"),
    [
        (10 * G, 300, 3_750, 67),
        (25 * G, 100, 3_125, 80),
        (100 * G, 40, 5_000, 394),
        (400 * G, 5, 2_500, 905),
        (50 * G, 1, 63, 147),
        (56 * G, 40, 2_800, 394),  # the next speed that the standard lists
        (800 * G, 40, 40_000, 905),
    ],
)
def test_headroom_is_the_cable_both_ways_two_frames_and_the_neighbours_reaction(
    rate: int, metres: int, least: int, quanta: int
) -> None:
    found = Headroom(rate, metres, 9_100)
    assert found.least == least + 2 * 9_100 + 84
    assert found.most == found.least + 64 * quanta


@given(st.integers(1, 800), st.integers(1, 40_000), st.integers(64, 9_216))
def test_headroom_never_shrinks_with_speed_length_or_frame(
    gigabits: int, metres: int, frame: int
) -> None:
    one = Headroom(gigabits * G, metres, frame)
    for more in (
        Headroom((gigabits + 1) * G, metres, frame),
        Headroom(gigabits * G, metres + 1, frame),
        Headroom(gigabits * G, metres, frame + 1),
    ):
        assert more.least >= one.least
        assert more.most >= one.most


def sonic(cable: str = "", *, xoff: int = 30_720, length: str = "40m", mtu: int = 9_100) -> str:
    """The warnings about headroom of a plan for a switch from the factory."""
    tables = sonic_roce(PORTS["sonic"])
    tables["BUFFER_PROFILE"][PROFILE]["xoff"] = str(xoff)
    tables["CABLE_LENGTH"]["AZURE"] = dict.fromkeys(PORTS["sonic"], length)
    for row in tables["PORT"].values():
        row["mtu"] = str(mtu)
    key = f'cable = "{cable}"\n' if cable else ""
    names = ", ".join(f'"{port}"' for port in PORTS["sonic"])
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\nspray = "keep"\n{key}{CLASSES}'
        f"[keep]\nqueues = [3, 4]\n"
        f'[[device]]\nname = "leaf"\nplatform = "sonic"\n'
        f'[[device.ports]]\nnames = [{names}]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    platform = PLATFORMS["sonic"]
    made = plan(found, found.device("leaf"), platform, platform.read(sonic_text(tables)))
    return "\n".join(each for each in made.degraded if each.startswith("headroom: "))


def test_a_plan_compares_the_headroom_of_a_switch_with_its_cables() -> None:
    said = sonic()
    assert (
        "headroom: Ethernet[0-4/4]: queue 3 has 30720 bytes after a pause, and a cable of 40 m at "
        "100Gbit and frames of 9100 bytes need 23284 to 48500, by the neighbour: check how fast it "
        "stops"
    ) in said
    assert "queue 4 has 30720" in said
    assert not sonic(xoff=48_500)
    assert "need 23284 to 48500" in sonic(xoff=48_499)
    assert "need 23284: packets drop" in sonic(xoff=23_283)


def test_the_length_of_the_intent_is_that_of_the_cable_whatever_the_switch_says() -> None:
    assert "a cable of 300 m at 100Gbit and frames of 9100 bytes need 55784: packets" in sonic(
        "300m"
    )
    assert "a cable of 300 m" in sonic(length="300m")
    assert "a cable of 5 m" in sonic("5m", length="300m")
    assert "a cable of 40 m" in sonic(length="none")
    assert not sonic(mtu=1_500, length="5m")


def test_a_length_that_is_none_is_refused_by_its_line() -> None:
    with pytest.raises(BadIntent, match=r"cable.*0m is outside 1m\.\.40000m"):
        sonic("0m")
    with pytest.raises(BadIntent, match='length such as "40m"'):
        sonic("40")


def test_nxos_tells_its_headroom_as_a_buffer_and_a_threshold() -> None:
    """`pause` of a network class may have sizes. Their digits are no PFC priorities."""

    def said(buffer: int, mtu: int = 9_216) -> list[str]:
        room = f"buffer-size {buffer} pause-threshold 20480 resume-threshold 10240 pfc-cos 3"
        text = nxos().replace("pause pfc-cos 3", f"mtu {mtu}\n    pause {room}")
        found = model_of("nxos", text)
        assert {each.pauses for each in found.other} <= {frozenset(), frozenset("3")}
        return [*warnings(*wanted("nxos"), found)]

    assert not said(20_480 + 48_732)
    assert not said(20_480 + 33_300, 1_500)
    assert said(20_480 + 48_731) == [
        "headroom: Ethernet1/1: queue 3 has 48731 bytes after a pause, and a cable of 40 m at "
        "100Gbit and frames of 9216 bytes need 23516 to 48732, by the neighbour: check how fast "
        "it stops"
    ]
    assert said(20_480)[0].endswith("need 23516: packets drop")
    row = "[[lossless]]\nname = 'roce'\npriority = 3\ndscp = [24]\nshare = 50\ncable = '100m'"
    text = nxos().replace("pfc-cos 3", "buffer-size 9 pause-threshold 5 pfc-cos 3")
    [one] = warnings(*wanted("nxos", "", row), model_of("nxos", text))
    assert "a cable of 100 m" in one  # NX-OS has no length of its own


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("", 2500),
        ("input dscp code-point 011010 pfc mru 9216", 0),
        ("input dscp code-point 011010 pfc mru 4000", 4000),
        ("input dscp code-point 011010 mru 4000", 4000),
    ],
)
@pytest.mark.parametrize("mtu", [9216, 2500])
def test_junos_computes_its_headroom_for_frames_of_an_mru(line: str, short: int, mtu: int) -> None:
    text = (
        f"set interfaces et-0/0/0 mtu {mtu}\nset interfaces et-0/0/1 mtu 1514\n"
        "set class-of-service forwarding-classes class R queue-num 3 no-loss pfc-priority 3\n"
        "set class-of-service classifiers dscp C forwarding-class R loss-priority low code-points "
        "011010\n"
        "set class-of-service congestion-notification-profile P input dscp code-point 011010 pfc\n"
        "set class-of-service interfaces et-0/0/0 congestion-notification-profile P\n"
        "set class-of-service interfaces et-0/0/0 unit 0 classifiers dscp C\n"
    )
    text += f"set class-of-service congestion-notification-profile P {line}\n" if line else ""
    notes = model_of("junos", text).notes
    assert not notes["et-0/0/1"]
    expected = [short] if 0 < short < mtu else []
    assert [int(each.split(" bytes")[0].split()[-1]) for each in notes["et-0/0/0"]] == expected
    usual = model_of("junos", text.replace("pfc-priority 3", "pfc-priority 4")).notes["et-0/0/0"]
    assert len(usual) == (4000 == short < mtu)
