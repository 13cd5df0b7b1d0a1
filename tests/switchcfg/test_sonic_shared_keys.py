"""Keys of CONFIG_DB for several ports, as device templates of sonic-buildimage write them.

Forms are of qos.json.j2 and buffers_defaults_*.j2 of Dell S5248F, Celestica, Delta and Wistron; how
orchagent takes them apart is in qosorch.cpp and bufferorch.cpp of sonic-swss.
"""

import json
from typing import Any, Final

import jsonpatch
import pytest

from switchcfg.errors import BadState, Refused
from switchcfg.plan.plan import plan, removal, reverse
from switchcfg.plan.state import Place, State, after
from switchcfg.platforms.sonic.platform import Sonic
from switchcfg.platforms.sonic.shared_keys import SHARED, TABLES, expand
from tests.switchcfg.accounted import PORTS, wanted
from tests.switchcfg.stock import sonic_roce, sonic_text

SONIC = Sonic()
KEEP: Final = "queues = [3, 4]"
THIRD: Final = "Ethernet8"  # a port of the switch that the intent does not name


def shared(tables: tuple[str, ...] = TABLES) -> dict[str, Any]:
    """A stock switch whose rows for each queue are one key of all ports."""
    document = sonic_roce((*PORTS["sonic"], THIRD))
    for table in tables:
        rows: dict[str, Any] = {}
        for key, fields in document[table].items():
            port, bar, queues = key.partition("|")
            name = next((k for k in rows if k.partition("|")[2] == queues), "")
            ports = name.partition("|")[0]
            rows.pop(name, None)
            rows[f"{ports},{port}{bar}{queues}".lstrip(",")] = fields
        document[table] = rows
    return document


def values(state: State) -> dict[Place, str]:
    return {place: value for place, value in state.items() if place.kind != SHARED}


def applied(document: dict[str, Any], steps: Any) -> dict[str, Any]:
    for step in steps:
        document = jsonpatch.apply_patch(document, json.loads(step.payload))
    return document


@pytest.mark.parametrize("tables", [TABLES, *((table,) for table in TABLES)])
def test_a_key_of_several_ports_is_read_as_one_per_port(tables: tuple[str, ...]) -> None:
    document = shared(tables)
    single = sonic_roce((*PORTS["sonic"], THIRD))
    present = SONIC.read(sonic_text(document))
    assert values(present) == SONIC.read(sonic_text(single))
    assert json.loads(SONIC.write(present)) == {
        table: {key: f for key, f in rows.items()}
        for table, rows in document.items()
        if table not in ("DEVICE_METADATA", "VERSIONS")
    } | {t: json.loads(SONIC.write(present))[t] for t in ("DEVICE_METADATA", "VERSIONS")}


@pytest.mark.parametrize("tables", [TABLES, *((table,) for table in TABLES)])
def test_a_plan_splits_the_keys_that_it_changes_and_a_rollback_joins_them(
    tables: tuple[str, ...],
) -> None:
    document = shared(tables)
    present = SONIC.read(sonic_text(document))
    of = wanted("sonic", KEEP)
    made = plan(*of, SONIC, present)
    there = applied(document, made.steps)
    then = SONIC.read(sonic_text(there))
    assert then == after(present, made.changes)
    assert not plan(*of, SONIC, then).changes
    # As if the switch had had a key per port, and nothing of the third port differs.
    single = SONIC.read(sonic_text(sonic_roce((*PORTS["sonic"], THIRD))))
    assert values(then) == after(single, plan(*of, SONIC, single).changes)
    assert {p: v for p, v in then.items() if p.name.startswith(THIRD)} == {
        p: v for p, v in single.items() if p.name.startswith(THIRD)
    }
    back = reverse(of[0], made, of[1], SONIC, then)
    assert applied(there, back.steps) == document
    assert any(f"{THIRD} goes down" in each for each in made.disrupts) == (tables != ("BUFFER_PG",))


def test_flow_control_of_a_shared_key_is_seen() -> None:
    with pytest.raises(Refused, match="lossless: Ethernet0 queue 3 has PFC"):
        plan(*wanted("sonic", ""), SONIC, SONIC.read(sonic_text(shared())))


def test_a_key_goes_before_its_rows_are_written() -> None:
    """orchagent takes a key's settings off its queues when it goes."""
    made = plan(*wanted("sonic", KEEP), SONIC, SONIC.read(sonic_text(shared())))
    first, second, *_ = made.steps
    assert {op["op"] for op in json.loads(first.payload)} == {"remove"}
    assert {op["op"] for op in json.loads(second.payload)} == {"add"}


def test_a_key_of_ports_beside_the_plan_stays() -> None:
    document = shared()
    document["PORT"]["Ethernet12"] = document["PORT"][THIRD]
    key = f"{THIRD},Ethernet12|8"
    document["QUEUE"][key] = {"scheduler": "scheduler.0"}
    present = SONIC.read(sonic_text(document))
    made = plan(*wanted("sonic", KEEP), SONIC, present)
    assert key in applied(document, made.steps)["QUEUE"]


def test_a_shared_key_with_a_profile_of_switchcfg_goes_with_it() -> None:
    of = wanted("sonic", "")
    single = sonic_roce((*PORTS["sonic"], THIRD))
    for row in single["PORT_QOS_MAP"].values():
        del row["pfc_enable"], row["pfcwd_sw_enable"]
    there = applied(single, plan(*of, SONIC, SONIC.read(sonic_text(single))).steps)
    fields = [there["QUEUE"].pop(f"{port}|7") for port in PORTS["sonic"]]
    there["QUEUE"][f"{','.join(PORTS['sonic'])}|7"] = fields[0]
    present = SONIC.read(sonic_text(there))
    assert not plan(*of, SONIC, present).changes
    made = removal(*of, SONIC, present)
    assert Place(SHARED, f"QUEUE|{','.join(PORTS['sonic'])}|7", "") in {
        change.place for change in made.changes
    }
    assert SONIC.read(sonic_text(applied(there, made.steps))) == after(present, made.changes)


@pytest.mark.parametrize("key", ["Ethernet0,|3", ",Ethernet0|3", "Ethernet0,Ethernet0|3"])
def test_a_list_that_is_no_list_of_ports_is_refused(key: str) -> None:
    document = shared(())
    document["QUEUE"] = {key: {"scheduler": "scheduler.1"}}
    with pytest.raises(Refused, match="a key for several ports"):
        plan(*wanted("sonic", KEEP), SONIC, SONIC.read(sonic_text(document)))


def test_keys_are_bounded() -> None:
    ports = ",".join(f"Ethernet{each}" for each in range(1 << 10))
    rows = {f"{ports}|{queue}": {str(n): "" for n in range(100)} for queue in range(8)}
    with pytest.raises(BadState, match="more than 262144 values"):
        expand("QUEUE", rows)


def test_a_removal_leaves_shared_keys_of_others() -> None:
    document = shared()
    made = removal(*wanted("sonic", KEEP), SONIC, SONIC.read(sonic_text(document)))
    assert not made.changes
