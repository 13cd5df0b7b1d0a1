"""Configurations of others, by platform, and intents beside them: for tests over all of them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from switchcfg.errors import SwitchcfgError
from switchcfg.intent.intent import Device, Intent
from tests.switchcfg.accounted import PORTS, wanted
from tests.switchcfg.linux_device import LinuxDevice
from tests.switchcfg.stock import sonic_roce, sonic_text
from tests.switchcfg.test_accounted_lines import EOS, nxos
from tests.switchcfg.test_captured import captured
from tests.switchcfg.test_openconfig import CAPTURED
from tests.switchcfg.test_sonic_shared_keys import shared


def _without_pfc() -> str:
    tables = sonic_roce(PORTS["sonic"])
    for row in tables["PORT_QOS_MAP"].values():
        del row["pfc_enable"], row["pfcwd_sw_enable"]
    return sonic_text(tables)


DEVICES: Final[dict[tuple[str, str], str]] = {
    ("sonic", "stock"): sonic_text(sonic_roce(PORTS["sonic"])),
    ("sonic", "without PFC"): _without_pfc(),
    ("sonic", "keys of several ports"): sonic_text(shared()),
    ("eos", "empty"): "hostname leaf\ninterface Ethernet1/1\ninterface Ethernet2/1\n",
    ("eos", "profile"): EOS.replace("LINE", "no priority"),
    ("eos", "PFC"): (
        "hostname leaf\nqos map dscp 24 25 to traffic-class 3\n"
        "interface Ethernet1/1\n   priority-flow-control priority 3 no-drop\n"
        "interface Ethernet2/1\n   priority-flow-control priority 3 no-drop\n"
    ),
    ("nxos", "empty"): "hostname leaf\ninterface Ethernet1/1\ninterface Ethernet1/2\n",
    ("nxos", "RoCE"): nxos(),
    ("nvue", "empty"): "nv set system hostname leaf\n",
    ("nvue", "RoCE"): captured("nvue.roce"),
    ("junos", "empty"): "set system host-name leaf\n",
    ("junos", "RoCE"): captured("junos_roce"),
    ("openconfig", "empty"): "{}",
    ("openconfig", "policies"): CAPTURED,
    ("linux", "empty"): LinuxDevice(PORTS["linux"]).says(),
}
_LOSSLESS: Final = '[[lossless]]\nname = "roce"\npriority = 3\ndscp = [{}]\nshare = 15\n'
_NAMES: Final = (
    "STORAGE", "CLASSIFY", "OUT", "roce-ecn", "mydscp", "sm1", "cnp", "scheduler", "scheduler.1",
    "dscp_based_classifier_ipv4", "AZURE_LOSSLESS", "AZURE", "SWITCH_HASH", "default-global",
)  # fmt: skip
_REPLACES: Final = f"replaces = [{', '.join(f'{chr(34)}{name}{chr(34)}' for name in _NAMES)}]\n"
_KEEPS: Final = ("", "queues = [3]", "queues = [4]", "queues = [3, 4]")
_POINTS: Final = ("", "\n[keep.dscp]\n24 = 3")


def intents(platform: str) -> Iterator[tuple[Intent, Device]]:
    """Intents that keep, replace and pause in many ways; those that the platform can have."""
    lossless = ("", *(_LOSSLESS.format(points) for points in ("3", "24, 25, 26")))
    ways = product(_KEEPS, ("", _REPLACES), _POINTS, lossless)
    for number, (queues, replaces, points, more) in enumerate(ways):
        try:
            intent, device = wanted(platform, f"{queues}\n{replaces}{points}", more)
        except SwitchcfgError:
            continue
        yield replace(intent, spray=("keep", "hash")[number % 2]), device
