"""All platforms of switches: a row each. A new platform is a row here and the module of its class.

Classes are named, not imported: a driver needs its library, and this module is read by the parser
of intents, which the classes import.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from switchcfg.intent.port_names import ANY_CHANNEL, Channels, PortNames


@dataclass(frozen=True, slots=True)
class SpeedField:
    """Where the state of a device has the speeds of its ports: objects `kind`, named by port."""

    kind: str
    field: str
    unit: int  # bit/s


@dataclass(frozen=True, slots=True)
class Known:
    """One platform, as far as it differs from others outside of its class."""

    title: str  # for documents
    platform: str  # "module:class" of its `Platform`
    driver: str  # "module:class" of its `Driver`, which has `of(Target)`; "": none
    extra: str  # of dlcpd, with the library of the driver
    ports: PortNames
    settings: tuple[str, ...] = ()  # keys of [[device]] that other platforms refuse
    slugs: tuple[str, ...] = ()  # its names in NetBox, with "-" for "_"
    speeds: SpeedField | None = None  # None: the state has no speeds
    joint: str = "-"  # between the parts of a profile's name
    model: str = ""  # "module:function" of `switchcfg.model`; "": its plans are not judged by one
    whole: bool = False  # plans set something for all ports: a map of code points, network-qos


# Port-channels: where queues and profiles are bound. EOS: to the channel (Arista's AVD,
# service_profile of port-channel interfaces). NX-OS: to the channel; a policy of a member has no
# effect (Nexus 9000 QoS guide). Junos: one configuration for all members (CoS guide, "Configuring
# Schedulers on Aggregated Interfaces"). SONiC: QUEUE and PORT_QOS_MAP have keys of PORT (its YANG).
# NVUE, Linux: a bond hands packets to queues of its members.
KNOWN: Final[Mapping[str, Known]] = {
    "sonic": Known(
        "SONiC", "switchcfg.platforms.sonic.platform:Sonic", "switchcfg.drivers.ssh:SshDriver",
        "ssh", PortNames(r"Ethernet\d{1,4}", "Ethernet0", Channels(ANY_CHANNEL)),
        settings=("pool", "reload"), slugs=("community-sonic",),
        speeds=SpeedField("PORT", "speed", 10**6), joint="_", model="switchcfg.model.sonic:model",
    ),
    "eos": Known(
        "Arista EOS", "switchcfg.platforms.eos:Eos", "switchcfg.drivers.eos:EosDriver", "eos",
        PortNames(
            r"Ethernet\d{1,3}(/\d{1,3}){0,2}|Port-Channel\d{1,4}", "Ethernet1/1",
            Channels(ANY_CHANNEL, "Port-Channel"),
        ),
        slugs=("arista-eos",), model="switchcfg.model.eos:model", whole=True,
    ),
    "nxos": Known(
        "Cisco NX-OS", "switchcfg.platforms.nxos.platform:Nxos",
        "switchcfg.drivers.nxos:NxosDriver", "nxos",
        PortNames(
            r"Ethernet\d{1,3}/\d{1,3}(/\d{1,2})?|port-channel\d{1,4}", "Ethernet1/1",
            Channels(ANY_CHANNEL, "port-channel"),
        ),
        slugs=("cisco-nxos", "cisco-nx-os", "nx-os"), model="switchcfg.model.nxos:model",
        whole=True,
    ),
    "nvue": Known(
        "Cumulus Linux (NVUE)", "switchcfg.platforms.nvue.platform:Nvue",
        "switchcfg.drivers.nvue:NvueDriver", "ssh",
        PortNames(r"swp\d{1,3}(s\d{1,2})?", "swp1", Channels(ANY_CHANNEL)),
        slugs=("cumulus", "cumulus-linux", "nvidia-cumulus-linux"),
        model="switchcfg.model.nvue:model", whole=True,
    ),
    "junos": Known(
        "Juniper Junos", "switchcfg.platforms.junos.platform:Junos",
        "switchcfg.drivers.netconf:NetconfDriver", "netconf",
        PortNames(
            r"(et|xe|ge)-\d{1,2}/\d{1,2}/\d{1,3}(:\d{1,2})?|ae\d{1,4}", "et-0/0/0",
            Channels(ANY_CHANNEL, "ae"), speeds=(("ge-", 10**9), ("xe-", 10 * 10**9)),
        ),
        settings=("dscp_ipv6",),
        slugs=("juniper-junos", "junos-evo", "juniper-junos-evo"),
        model="switchcfg.model.junos:model",
    ),
    "linux": Known(
        "Linux", "switchcfg.platforms.linux.platform:Linux", "switchcfg.drivers.ssh:SshDriver",
        "ssh",
        PortNames(
            r"[A-Za-z][A-Za-z0-9._-]{0,14}", "eth0",
            Channels(re.compile(r"(?:bond|team)(\d{1,4})")),
            slowest=1,  # Linux shapes to the rate, which may be any
        ),
        model="switchcfg.model.linux:model",
    ),
    "openconfig": Known(
        "OpenConfig", "switchcfg.platforms.openconfig.platform:OpenConfig",
        "switchcfg.drivers.gnmi:GnmiDriver", "gnmi",
        PortNames(r"[A-Za-z][A-Za-z0-9/:._-]{0,31}", "Ethernet1"),
        model="switchcfg.model.openconfig:model",
    ),
}  # fmt: skip


def having(setting: str) -> str:
    """The platforms that have a setting of [[device]], in words."""
    return " and ".join(name for name, each in KNOWN.items() if setting in each.settings)
