"""An intent that keeps RoCE, for tests of what is read of a device that has it."""

import pytest

from switchcfg.errors import Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import Plan, plan
from switchcfg.platforms.known import PLATFORMS

PORTS = {
    "eos": ("Ethernet1/1", "Ethernet2/1"),
    "nxos": ("Ethernet1/1", "Ethernet1/2"),
    "nvue": ("swp1", "swp2"),
    "sonic": ("Ethernet0", "Ethernet4"),
    "openconfig": ("eth1", "eth3"),
    "junos": ("et-0/0/0", "et-0/0/1"),
    "linux": ("p1", "p2"),
}
CLASSES = (
    "[classes]\n"
    'control = { rank = 0, dscp = [48], ecn = ["ect0"] }\n'
    'front = { rank = 1, dscp = [34, 36], ecn = ["ect0", "not-ect"] }\n'
    'back = { rank = 2, dscp = [10, 14], ecn = ["ect0", "not-ect"] }\n'
)


def wanted(platform: str, keep: str = "queues = [3]", more: str = "") -> tuple[Intent, Device]:
    ports = ", ".join(f'"{port}"' for port in PORTS[platform])
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\nspray = "keep"\n{CLASSES}[keep]\n{keep}\n{more}\n'
        f'[[device]]\nname = "leaf"\nplatform = "{platform}"\n'
        f'[[device.ports]]\nnames = [{ports}]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def planned(platform: str, text: str, keep: str = "queues = [3]", more: str = "") -> Plan:
    kind = PLATFORMS[platform]
    return plan(*wanted(platform, keep, more), kind, kind.read(text))


def refusal(platform: str, text: str, keep: str = "queues = [3]", more: str = "") -> str:
    with pytest.raises(Refused) as caught:
        planned(platform, text, keep, more)
    return str(caught.value)
