"""Packet trimming: what has no room goes on as its first bytes, in the queue of the first class."""

import socket
import struct
from typing import Any

import pytest

from switchcfg.errors import CannotExpress, Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.before import before
from switchcfg.plan.plan import Plan, plan, removal
from switchcfg.plan.state import State, after
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.sonic.config_db import document
from switchcfg.platforms.sonic.platform import Sonic
from switchcfg.platforms.sonic.releases import refuses
from tests.switchcfg.intents import EXAMPLES
from tests.switchcfg.stock import sonic_roce, sonic_text
from tests.switchcfg.test_sonic_present import PORTS, intent
from tests.switches.sonic import validators

SONIC = Sonic()
TRIM = "[queues]\ntrim = 256\n[keep]\nqueues = [3, 4]\n"


def switch(*, version: str = "version_202511_01", hwsku: str = "ACS-SN5600") -> dict[str, Any]:
    tables = sonic_roce(PORTS, version=version)
    tables["DEVICE_METADATA"]["localhost"]["hwsku"] = hwsku
    return tables


def planned(tables: dict[str, Any], wanted: tuple[Intent, Device]) -> tuple[State, Plan]:
    present = SONIC.read(sonic_text(tables))
    return present, plan(*wanted, SONIC, present)


def test_all_queues_but_the_first_trim_and_what_is_left_goes_there() -> None:
    present, made = planned(switch(), intent(TRIM))
    then = document(after(present, made.changes))
    classes = intent(TRIM)[0].classes
    assert then["SWITCH_TRIMMING"] == {
        "GLOBAL": {"size": "256", "dscp_value": str(classes[0].dscp[0]), "queue_index": "7"}
    }
    for queue in (7, 6, 5, 2, 1):
        profile = then["BUFFER_PROFILE"][then["BUFFER_QUEUE"][f"Ethernet0|{queue}"]["profile"]]
        assert profile.get("packet_discard_action") == (None if queue == 7 else "trim"), queue
    assert any("kernels of receivers drop a datagram" in text for text in made.degraded)
    assert not plan(*intent(TRIM), SONIC, after(present, made.changes)).changes


def test_it_is_switched_on_and_off_by_patches_that_any_hwsku_takes() -> None:
    """The field of a profile that is there could be added, and never taken away again."""
    present, first = planned(switch(), intent())
    without = after(present, first.changes)
    on = plan(*intent(TRIM), SONIC, without)
    trims = after(without, on.changes)
    off = plan(*intent(), SONIC, trims)
    for made, old in ((on, without), (off, trims)):
        assert made.steps
        assert not made.minutes
        assert not any("in place" in text for text in made.degraded)
        then = after(old, made.changes)
        assert not refuses(old, made.changes)
        assert not list(validators.problems(document(old), document(then)))
        assert not list(validators.problems(document(then), document(old)))
    rows = document(after(trims, off.changes))["BUFFER_PROFILE"]
    assert not any("packet_discard_action" in row for row in rows.values())


def test_a_removal_does_not_try_what_sonic_cannot_remove() -> None:
    of = intent(TRIM)
    present, made = planned(switch(), of)
    then = after(present, made.changes)
    gone = removal(*of, SONIC, then, before([made], then))
    assert not [change for change in gone.changes if change.place.kind == "SWITCH_TRIMMING"]


def test_a_removal_leaves_nothing_that_trims() -> None:
    tables = switch()
    for binding in tables["PORT_QOS_MAP"].values():
        del binding["pfc_enable"]
    present, made = planned(tables, intent(TRIM))
    applied = after(present, made.changes)
    left = document(after(applied, removal(*intent(TRIM), SONIC, applied).changes))
    assert not any("packet_discard_action" in row for row in left["BUFFER_PROFILE"].values())
    # Which cannot be taken away: orchagent refuses it, and the ASIC would stay as it is.
    assert left["SWITCH_TRIMMING"]


@pytest.mark.parametrize(
    ("version", "hwsku", "says"),
    [
        ("version_202411_02", "ACS-SN5600", "SONiC 202411 does not trim packets: 202505 and"),
        ("version_202511_01", "ACS-MSN2700", "HWSKU ACS-MSN2700: SONiC trims on Spectrum-4 and 5"),
        ("version_202511_01", "Nokia-IXR7220-H6-64", "trims from 202605 on, and this is SONiC"),
        ("version_202605_01", "Nokia-IXR7220-H6-64", ""),
        ("version_202605_01", "Mellanox-SN5640-C512S2", ""),
        ("version_202511_01", "Arista-7060X6-64PE", ""),
    ],
)  # fmt: skip
def test_releases_and_hwskus_that_do_not_trim_are_named(
    version: str, hwsku: str, says: str
) -> None:
    tables = switch(version=version, hwsku=hwsku)
    if not says:
        assert planned(tables, intent(TRIM))[1].changes
        return
    with pytest.raises(Refused) as caught:
        planned(tables, intent(TRIM))
    assert says in str(caught.value)
    assert "trim: " in str(caught.value)


def test_between_the_first_release_and_202511_it_takes_a_reload() -> None:
    tables = switch(version="version_202505_01")
    with pytest.raises(Refused, match="a full reload applies it"):
        planned(tables, intent(TRIM))
    made = planned(tables, intent(TRIM, more="reload = true\n"))[1]
    assert [step.title for step in made.steps] == ["reload the switch"]


def test_another_size_of_our_own_is_planned() -> None:
    present, made = planned(switch(), intent(TRIM))
    applied = after(present, made.changes)
    [change] = plan(*intent(TRIM.replace("256", "512")), SONIC, applied).changes
    assert (change.place.field, change.before, change.after) == ("size", "256", "512")


def test_what_others_trim_stays_as_it_is() -> None:
    tables = switch()
    tables["SWITCH_TRIMMING"] = {"GLOBAL": {"size": "128", "dscp_value": "5", "queue_index": "6"}}
    planned(tables, intent(TRIM))  # nobody uses it
    theirs = {
        "pool": "egress_lossy_pool",
        "size": "0",
        "dynamic_th": "1",
        "packet_discard_action": "trim",
    }
    tables["BUFFER_PROFILE"]["theirs"] = theirs
    planned(tables, intent())  # we do not want to
    with pytest.raises(Refused, match="trims with size 128, dscp_value 5, queue_index 6, for BUF"):
        planned(tables, intent(TRIM))


@pytest.mark.parametrize("platform", [name for name in PLATFORMS if name != "sonic"])
def test_platforms_without_it_are_named(platform: str) -> None:
    text = EXAMPLES["brownfield"].replace("[queues]\n", "[queues]\ntrim = 256\n")
    wanted = parse(text, "intent.toml")
    [device] = [each for each in wanted.devices if each.platform == platform]
    with pytest.raises(
        CannotExpress,
        match=f"trim: switchcfg supports packet trimming on SONiC only, not on {platform}",
    ):
        PLATFORMS[platform].render(wanted, device)


@pytest.mark.netns
def test_a_receiver_does_not_see_a_datagram_that_was_cut_short() -> None:
    """As docs/switches-platforms.md says of kernels."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as switch_,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        address = receiver.getsockname()
        for length in (8 + 200, 8 + 1408):  # of 200 bytes that arrive: all there are, and not
            switch_.sendto(struct.pack("!HHHH", 40000, address[1], length, 0) + bytes(200), address)
        sender.sendto(b"whole", address)
        assert receiver.recv(2048) == bytes(200)
        assert receiver.recv(2048) == b"whole"
