"""Switches as others configured them, in the shape in which they tell of themselves."""

import json
from collections.abc import Sequence
from typing import Any

from switchcfg.intent.intent import Device, Intent, parse
from tests.switchcfg.intents import EXAMPLES

COLOURS = ("green", "yellow", "red")


def sonic_roce(
    ports: Sequence[str], *, pool: str = "egress_lossy_pool", version: str = "version_202511_01"
) -> dict[str, Any]:
    """CONFIG_DB of a switch from the factory: what sonic-buildimage's templates qos_config.j2 and
    buffers_config.j2 make, with PFC on 3 and 4, and rows of BUFFER_QUEUE for ranges; and what
    buffermgrd makes of it, headroom for priority groups 3 and 4."""
    tc = {str(dscp): "1" for dscp in range(64)}
    tc |= {"3": "3", "4": "4", "5": "2", "8": "0", "46": "5", "48": "6"}
    wred: dict[str, str] = {"ecn": "ecn_all"}
    for colour in COLOURS:
        wred |= {
            f"wred_{colour}_enable": "true",
            f"{colour}_min_threshold": "1048576",
            f"{colour}_max_threshold": "2097152",
            f"{colour}_drop_probability": "5",
        }
    queues: dict[str, Any] = {}
    buffers: dict[str, Any] = {}
    for port in ports:
        for index in (0, 1, 2, 5, 6):
            queues[f"{port}|{index}"] = {"scheduler": "scheduler.0"}
        for index in (3, 4):
            row = {"scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS"}
            queues[f"{port}|{index}"] = row
        lossy, lossless = "egress_lossy_profile", "egress_lossless_profile"
        for part, profile in (("0-2", lossy), ("3-4", lossless), ("5-6", lossy)):
            buffers[f"{port}|{part}"] = {"profile": profile}
    groups: dict[str, Any] = {}
    for port in ports:
        groups[f"{port}|0"] = {"profile": "ingress_lossy_profile"}
        groups[f"{port}|3-4"] = {"profile": "pg_lossless_100000_40m_profile"}
    identity = {str(index): str(index) for index in range(8)}
    binding = {
        "dscp_to_tc_map": "AZURE",
        "tc_to_queue_map": "AZURE",
        "tc_to_pg_map": "AZURE",
        "pfc_to_queue_map": "AZURE",
        "pfc_enable": "3,4",
        "pfcwd_sw_enable": "3,4",
    }
    return {
        "VERSIONS": {"DATABASE": {"VERSION": version}},
        "DEVICE_METADATA": {"localhost": {"hwsku": "ACS-SN5600", "hostname": "leaf"}},
        "PORT": {
            port: {"lanes": str(index), "speed": "100000", "admin_status": "up"}
            for index, port in enumerate(ports)
        },
        "DSCP_TO_TC_MAP": {"AZURE": tc},
        "TC_TO_QUEUE_MAP": {"AZURE": identity},
        "TC_TO_PRIORITY_GROUP_MAP": {
            "AZURE": dict.fromkeys(identity, "0") | {"3": "3", "4": "4", "7": "7"}
        },
        "MAP_PFC_PRIORITY_TO_QUEUE": {"AZURE": identity},
        "SCHEDULER": {
            "scheduler.0": {"type": "DWRR", "weight": "14"},
            "scheduler.1": {"type": "DWRR", "weight": "15"},
        },
        "WRED_PROFILE": {"AZURE_LOSSLESS": wred},
        "QUEUE": queues,
        "PORT_QOS_MAP": {port: dict(binding) for port in ports},
        "BUFFER_POOL": {
            "egress_lossless_pool": {"type": "egress", "mode": "static", "size": "12766208"},
            **(
                {pool: {"type": "egress", "mode": "dynamic", "size": "7326924"}}
                if pool != "egress_lossless_pool"
                else {}
            ),
            "ingress_lossless_pool": {"type": "ingress", "mode": "dynamic", "size": "12766208"},
        },
        "CABLE_LENGTH": {"AZURE": dict.fromkeys(ports, "40m")},
        "BUFFER_PG": groups,
        "BUFFER_PROFILE": {
            "ingress_lossy_profile": {
                "pool": "ingress_lossless_pool",
                "size": "0",
                "dynamic_th": "3",
            },
            "pg_lossless_100000_40m_profile": {
                "pool": "ingress_lossless_pool",
                "size": "50176",
                "xon": "19456",
                "xoff": "30720",
                "dynamic_th": "0",
            },
            "egress_lossless_profile": {
                "pool": "egress_lossless_pool",
                "size": "0",
                "static_th": "12766208",
            },
            "egress_lossy_profile": (
                {"pool": pool, "size": "1518", "static_th": "15982720"}
                if pool == "egress_lossless_pool"
                else {"pool": pool, "size": "1518", "dynamic_th": "3"}
            ),
        },
        "BUFFER_QUEUE": buffers,
    }


def sonic_text(tables: dict[str, Any]) -> str:
    return json.dumps(tables)


def sonic_example(
    example: str, version: str = "version_202511_01"
) -> tuple[Intent, Device, dict[str, Any]]:
    """An example's intent and SONiC device, and the switch from the factory that it is for: without
    flow control, and with what brownfield keeps."""
    wanted = parse(EXAMPLES[example], example)
    [device] = [each for each in wanted.devices if each.platform == "sonic"]
    tables = sonic_roce(device.ports, version=version)
    for binding in tables["PORT_QOS_MAP"].values():
        del binding["pfc_enable"], binding["pfcwd_sw_enable"]
    tables["DSCP_TO_TC_MAP"]["AZURE"] |= {"3": "1", "4": "1", "24": "3"}
    return wanted, device, tables
