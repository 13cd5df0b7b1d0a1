"""Refuses SONiC switches with several ASICs. Pure.

Each ASIC is a network namespace (`asic0` and on) with its own CONFIG_DB. The host's CONFIG_DB has
no queues, so a plan for it would have no effect. `show runningconfiguration all` prints all of
them by namespace, and DEVICE_METADATA of each has the role of the ASIC (sonic-utilities;
sonic-py-common, multi_asic.py; sonic-yang-models, sonic-device_metadata).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from switchcfg.errors import BadState

# Runs before the snapshot; its output has the form of `show runningconfiguration all`.
ASK: Final = """\
if ip netns list 2>/dev/null | grep -q '^asic[0-9]'; then
    echo '{"localhost": {}, "asic0": {}}'
    exit 0
fi
"""
_WHY: Final = (
    "each ASIC has its own CONFIG_DB, and switchcfg supports switches with one ASIC only: "
    "remove this device from the intent"
)


def refuse_several(document: Mapping[str, Any]) -> None:
    """Raises: BadState for the configuration of a switch with several ASICs, or of one ASIC."""
    if any(re.fullmatch(r"asic\d+", key) for key in document):
        raise BadState(f"a switch with several ASICs: {_WHY}")
    match document.get("DEVICE_METADATA"):
        case {"localhost": {"sub_role": "FrontEnd" | "BackEnd" | "Fabric" as role}}:
            raise BadState(f"one ASIC of several ({role}): {_WHY}")


def refuse_voq(document: Mapping[str, Any]) -> None:
    """Raises: BadState for a switch with virtual output queues, whose keys have four parts
    (qosorch.cpp and bufferorch.cpp of sonic-swss drop others), and for a DPU of a SmartSwitch."""
    match document.get("DEVICE_METADATA"):
        case {"localhost": {"switch_type": "dpu"}}:
            raise BadState(
                "switch_type 'dpu': a processor of a SmartSwitch, with no queues of front ports: "
                "remove this device from the intent"
            )
        case {"localhost": {"switch_type": "voq" | "fabric" as kind}}:
            raise BadState(
                f"switch_type {kind!r}: keys of its queues name a switch and an ASIC, and "
                "switchcfg does not support them: remove this device from the intent"
            )
