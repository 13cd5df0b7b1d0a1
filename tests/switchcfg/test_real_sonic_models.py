"""Plans for SONiC against SONiC's own YANG models, where SONIC_YANG_MODELS names their folder.

They are sonic-net/sonic-buildimage, src/sonic-yang-models; a switch has those of its release in
/usr/local/yang-models.
"""

import copy
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from switchcfg.cli.sonic_yang import check
from switchcfg.plan.plan import plan
from switchcfg.plan.state import after
from switchcfg.platforms.sonic.config_db import document
from switchcfg.platforms.sonic.platform import Sonic
from tests.switchcfg.intents import EXAMPLES
from tests.switchcfg.stock import sonic_example, sonic_roce, sonic_text
from tests.switchcfg.test_sonic_lossless import ROCE, bare
from tests.switchcfg.test_sonic_lossless import intent as lossless
from tests.switchcfg.test_sonic_present import PORTS, intent

MODELS: Final = os.environ.get("SONIC_YANG_MODELS", "")
pytestmark = [
    pytest.mark.skipif(not MODELS, reason="SONIC_YANG_MODELS names no folder of models"),
    pytest.mark.skipif(not shutil.which("yanglint"), reason="yanglint is not installed"),
]
SONIC = Sonic()


def said(tables: dict[str, Any]) -> list[str]:
    return check(tables, Path(MODELS))


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_pass(example: str) -> None:
    wanted, device, tables = sonic_example(example)
    present = SONIC.read(sonic_text(tables))
    made = plan(wanted, device, SONIC, present)
    assert made.changes
    assert said(document(after(present, made.changes))) == []


def test_a_plan_that_trims_passes_and_mistakes_in_it_are_found() -> None:
    present = SONIC.read(sonic_text(sonic_roce(PORTS)))
    made = plan(*intent("[queues]\ntrim = 256\n[keep]\nqueues = [3, 4]\n"), SONIC, present)
    tables = document(after(present, made.changes))
    assert said(tables) == []
    for table, key, field, value in (
        ("SWITCH_TRIMMING", "GLOBAL", "dscp_value", "64"),
        ("SWITCH_TRIMMING", "GLOBAL", "queue_index", "any"),
        ("BUFFER_PROFILE", "DLCP_Q6_TRIM", "packet_discard_action", "cut"),
    ):
        wrong = copy.deepcopy(tables)
        assert field in wrong[table][key]
        wrong[table][key][field] = value
        assert said(wrong)


@pytest.mark.parametrize("dynamic", [False, True])
def test_lossless_classes_pass_and_mistakes_in_them_are_found(dynamic: bool) -> None:
    tables = bare()
    if dynamic:
        tables["DEVICE_METADATA"]["localhost"]["buffer_model"] = "dynamic"
    present = SONIC.read(sonic_text(tables))
    found = document(after(present, plan(*lossless(ROCE), SONIC, present).changes))
    assert found["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] == "3"
    assert ("Ethernet0|3" in found["BUFFER_PG"]) == dynamic
    assert said(found) == []
    for table, key, field, value in (
        ("PORT_QOS_MAP", "Ethernet0", "pfc_enable", "3,8"),
        ("PORT_QOS_MAP", "Ethernet0", "pfc_to_queue_map", "nobody"),
        ("MAP_PFC_PRIORITY_TO_QUEUE", "DLCP", "8", "3"),
        ("SCHEDULER", "DLCP_Q3", "weight", "0"),
        ("CABLE_LENGTH", "AZURE", "Ethernet0", "300"),
        ("BUFFER_PG", "Ethernet0|3", "profile", "nobody"),
    ):
        wrong = copy.deepcopy(found)
        wrong[table].setdefault(key, {})[field] = value
        assert said(wrong), (table, key, field)


@cache
def beside_roce() -> dict[str, Any]:
    present = SONIC.read(sonic_text(sonic_roce(PORTS)))
    return document(after(present, plan(*intent(), SONIC, present).changes))


def test_a_plan_beside_roce_passes() -> None:
    assert said(beside_roce()) == []


GONE: Final = "(gone)"
MUTATIONS: Final = [  # table, key, field, value
    ("WRED_PROFILE", "DLCP_Q7", "wred_blue_enable", "true"),
    ("WRED_PROFILE", "DLCP_Q7", "ecn", "ecn_blue"),
    ("WRED_PROFILE", "DLCP_Q7", "green_drop_probability", "101"),
    ("WRED_PROFILE", "DLCP_Q7", "green_max_threshold", "1"),
    ("WRED_PROFILE", "DLCP_Q7", "wred_green_enable", "yes"),
    ("DSCP_TO_TC_MAP", "DLCP", "64", "1"),
    ("DSCP_TO_TC_MAP", "DLCP", "07", "1"),
    ("DSCP_TO_TC_MAP", "DLCP", "6", "16"),
    ("TC_TO_QUEUE_MAP", "DLCP", "16", "1"),
    ("SCHEDULER", "DLCP_STRICT", "type", "strict"),
    ("SCHEDULER", "scheduler.0", "weight", "101"),
    ("SCHEDULER", "DLCP_STRICT", "pir", "9"),
    ("QUEUE", "Ethernet0|7", "scheduler", "nobody"),
    ("QUEUE", "Ethernet0|7", "wred_profile", "[WRED_PROFILE|DLCP_Q7]"),
    ("QUEUE", "Ethernet400|7", "scheduler", "DLCP_STRICT"),
    ("BUFFER_PROFILE", "DLCP_Q7", "dynamic_th", "9"),
    ("BUFFER_PROFILE", "DLCP_Q7", "pool", "nowhere"),
    ("BUFFER_QUEUE", "Ethernet0|7", "profile", "nobody"),
    ("PORT_QOS_MAP", "Ethernet0", "pfc_to_queue_map", "nobody"),
    ("PORT_QOS_MAP", "Ethernet0", "dscp_to_tc_map", "nobody"),
    ("SWITCH_HASH", "GLOBAL", "ecmp_hash", ["SRC_IP", "SRC_IQ"]),
    ("MAP_PFC_PRIORITY_TO_QUEUE", "AZURE", GONE, GONE),
]


@pytest.mark.parametrize(
    ("table", "key", "field", "value"), MUTATIONS, ids=[" ".join(row[:3]) for row in MUTATIONS]
)
def test_a_mistake_is_found(table: str, key: str, field: str, value: Any) -> None:
    tables = copy.deepcopy(beside_roce())
    if field == GONE:
        del tables[table][key]
    else:
        tables[table].setdefault(key, {})[field] = value
    assert said(tables)
