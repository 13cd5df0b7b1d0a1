"""SONiC switches of several ASICs are refused by name. Pure.

Each of their ASICs is a network namespace with a CONFIG_DB of its own, `asic0` and on; that of the
host has no queues, so a plan for it would do nothing. `show runningconfiguration all` prints all of
them, by namespace, and DEVICE_METADATA of each says what the ASIC is for (sonic-utilities;
sonic-py-common, multi_asic.py; sonic-yang-models, sonic-device_metadata).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from switchcfg.errors import BadState

# Asked before anything else; the answer is of the shape that `show runningconfiguration all` has.
ASK: Final = """\
if ip netns list 2>/dev/null | grep -q '^asic[0-9]'; then
    echo '{"localhost": {}, "asic0": {}}'
    exit 0
fi
"""
_WHY: Final = (
    "each has a CONFIG_DB of its own, and switchcfg plans for switches of one ASIC: leave this one "
    "out"
)


def refuse_several(document: Mapping[str, Any]) -> None:
    """Raises: BadState for what a switch of several ASICs says."""
    if any(re.fullmatch(r"asic\d+", key) for key in document):
        raise BadState(f"a switch of several ASICs: {_WHY}")
    match document.get("DEVICE_METADATA"):
        case {"localhost": {"sub_role": "FrontEnd" | "BackEnd" | "Fabric" as role}}:
            raise BadState(f"one ASIC of several ({role}): {_WHY}")
