"""What releases of SONiC take, by the version that CONFIG_DB says."""

from typing import Final

import pytest

from switchcfg.errors import Refused
from switchcfg.plan.plan import Plan, plan, removal
from switchcfg.plan.state import after
from switchcfg.platforms.sonic import Sonic
from switchcfg.platforms.sonic_releases import VERSION, release
from tests.switchcfg.intents import EXAMPLES
from tests.switchcfg.stock import sonic_example, sonic_roce, sonic_text
from tests.switchcfg.test_sonic_present import PORTS, intent

SONIC = Sonic()
TAKES: Final = {  # CURRENT_VERSION of db_migrator.py on each branch
    "version_4_0_3": False,
    "version_202305_01": False,
    "version_202311_03": False,
    "version_202405_02": False,
    "version_202411_02": False,
    "version_202505_01": False,
    "version_202511_01": True,
    "version_202605_01": True,
}


def planned(example: str, version: str) -> Plan:
    wanted, device, tables = sonic_example(example, version)
    return plan(wanted, device, SONIC, SONIC.read(sonic_text(tables)))


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("version", TAKES)
def test_examples_are_planned_or_refused_by_release(example: str, version: str) -> None:
    if TAKES[version]:
        assert planned(example, version).changes
        return
    with pytest.raises(Refused) as caught:
        planned(example, version)
    said = str(caught.value)
    assert f"release: SONiC {release({VERSION: version}) or 'before 2023'} takes no patch" in said
    assert "BUFFER_PROFILE" in said
    assert ("WRED_PROFILE" in said) == (example != "no_ecn")


def test_a_release_that_is_not_said_is_a_doubt() -> None:
    tables = sonic_roce(PORTS)
    del tables["VERSIONS"]
    made = plan(*intent(), SONIC, SONIC.read(sonic_text(tables)))
    assert any("the switch does not say which" in text for text in made.degraded)
    assert not any(
        "does not say" in text for text in planned("minimal", "version_202511_01").degraded
    )


def test_thresholds_that_change_in_place_depend_on_the_hwsku() -> None:
    present = SONIC.read(sonic_text(sonic_roce(PORTS)))
    first = plan(*intent(), SONIC, present)
    assert not any("in place" in text for text in first.degraded)
    larger = intent(keep='[queues]\nbuffer = "8MiB"\n[keep]\nqueues = [3, 4]\n')
    applied = after(present, first.changes)
    again = plan(*larger, SONIC, applied)
    assert not any("in place" in text for text in again.degraded)  # shares stay as they were
    moved = {place: "2" if place.field == "dynamic_th" and place.name.startswith("DLCP") else value
             for place, value in applied.items()}  # fmt: skip
    back = plan(*intent(), SONIC, moved)
    assert any("change in place" in text and "ACS-SN5600" in text for text in back.degraded)


def test_a_removal_that_the_release_does_not_take_is_refused() -> None:
    tables = sonic_roce(PORTS)
    for binding in tables["PORT_QOS_MAP"].values():
        del binding["pfc_enable"]
    present = SONIC.read(sonic_text(tables))
    applied = after(present, plan(*intent(), SONIC, present).changes)
    assert removal(*intent(), SONIC, applied).changes
    with pytest.raises(Refused, match="release: SONiC 202405 takes no patch that"):
        removal(*intent(), SONIC, applied | {VERSION: "version_202405_02"})
