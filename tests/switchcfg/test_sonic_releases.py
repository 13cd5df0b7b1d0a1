"""What releases of SONiC take, by the version that CONFIG_DB says, and what is done about it.

What the rules say is held against the validators of the SONiC-like switch in tests/switches, which
were written from upstream's and not from these rules.
"""

import json
import re
from dataclasses import replace
from typing import Any, Final

import jsonpatch
import pytest

from switchcfg.errors import BadIntent, Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import Plan, dump, load, plan, removal, reverse
from switchcfg.plan.state import Place, State, after, difference
from switchcfg.platforms.sonic.config_db import document
from switchcfg.platforms.sonic.platform import Sonic
from switchcfg.platforms.sonic.releases import HWSKU, VERSION, refuses, release
from switchcfg.platforms.sonic.scripts import RELOAD_BACK, ROLL_BACK
from switchcfg.platforms.sonic.steps import RELOADS
from tests.switchcfg.intents import EXAMPLES
from tests.switchcfg.stock import sonic_example, sonic_roce, sonic_text
from tests.switchcfg.test_sonic_present import PORTS, intent
from tests.switches.sonic import validators

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
CONSENT: Final = "a full reload applies it: allow that with [[device]] reload = true"


def refused_by_the_switch(before: State, then: State) -> list[str]:
    return list(validators.problems(document(before), document(then)))


def example_on(example: str, version: str, *, reload: bool) -> tuple[Intent, Device, State]:
    wanted, device, tables = sonic_example(example, version)
    return wanted, replace(device, reload=reload), SONIC.read(sonic_text(tables))


# --- five intents, five releases and some more, without and with consent -------------------


@pytest.mark.parametrize("reload", [False, True], ids=["no consent", "consent"])
@pytest.mark.parametrize("version", TAKES)
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_planned_or_refused_by_release(
    example: str, version: str, reload: bool
) -> None:
    wanted, device, present = example_on(example, version, reload=reload)
    if not TAKES[version] and not reload:
        with pytest.raises(Refused) as caught:
            plan(wanted, device, SONIC, present)
        said = str(caught.value)
        name = f"SONiC {release({VERSION: version}) or 'before 2023'}"
        assert f"release: {name} refuses a patch that adds or removes a BUFFER_PROFILE" in said
        assert ("removes a WRED_PROFILE" in said) == (example != "no_ecn")
        assert CONSENT in said
        return
    made = plan(wanted, device, SONIC, present)
    then = after(present, made.changes)
    assert bool(refused_by_the_switch(present, then)) == (not TAKES[version])
    if TAKES[version]:
        assert not made.minutes
        assert RELOADS not in made.disrupts
        assert SONIC.restore(present, made.changes) == ROLL_BACK
        assert not refused_by_the_switch(then, present)  # undone by a patch as well
    else:
        assert [step.title for step in made.steps] == ["reload the switch"]
        assert made.disrupts == (RELOADS,)
        assert SONIC.restore(present, made.changes) == RELOAD_BACK
    assert not plan(wanted, device, SONIC, then).changes
    assert load(dump(made), "x") == made


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_patch_of_a_plan_is_taken_by_itself(example: str) -> None:
    wanted, device, present = example_on(example, "version_202511_01", reload=False)
    now = document(present)
    for step in plan(wanted, device, SONIC, present).steps:
        then = jsonpatch.apply_patch(now, json.loads(step.payload))
        assert not list(validators.problems(now, then)), step.title
        now = then


def test_consent_is_of_sonic_alone() -> None:
    text = (
        'schema = 1\n[fabric]\nname = "lab"\n[[device]]\nname = "x"\nplatform = "eos"\n'
        'reload = true\n[[device.ports]]\nnames = ["Ethernet1"]\nrate = "100Gbit"\n'
    )
    with pytest.raises(BadIntent, match="reload: only sonic has this setting, not eos"):
        parse(text, "intent.toml")


# --- single changes -------------------------------------------------------------------------

WRED, BUFFER = ("WRED_PROFILE", "DLCP_Q7"), ("BUFFER_PROFILE", "DLCP_Q7")
SINGLE: Final[dict[str, dict[tuple[str, str, str], str | None]]] = {  # place -> its new value
    "new map": {("DSCP_TO_TC_MAP", "X", "1"): "1"},
    "new profile": {("BUFFER_PROFILE", "X", "pool"): "egress_lossy_pool"},
    "new curve": {("WRED_PROFILE", "X", "ecn"): "ecn_none"},
    "alpha": {(*BUFFER, "dynamic_th"): "2"},
    "bytes": {(*BUFFER, "size"): "7"},
    "another field": {(*BUFFER, "static_th"): "7"},
    "a field less": {(*BUFFER, "dynamic_th"): None},
    "threshold": {(*WRED, "green_max_threshold"): "7777777"},
    "lower threshold": {(*WRED, "green_min_threshold"): "7"},
    "probability": {(*WRED, "green_drop_probability"): "7"},
    "ecn": {(*WRED, "ecn"): "ecn_none"},
    "a curve's field less": {(*WRED, "green_drop_probability"): None},
    "profile gone": {(*BUFFER, field): None for field in ("pool", "size", "dynamic_th")},
}  # fmt: skip


@pytest.mark.parametrize("change", SINGLE)
@pytest.mark.parametrize("version", list(TAKES)[1:])
def test_the_rules_say_what_the_switch_says(version: str, change: str) -> None:
    present = SONIC.read(sonic_text(sonic_roce(PORTS)))
    present = after(present, plan(*intent(), SONIC, present).changes) | {VERSION: version}
    wanted = {Place(*place): value for place, value in SINGLE[change].items()}
    gone = {place for place, value in wanted.items() if value is None}
    then = {k: v for k, v in {**present, **wanted}.items() if k not in gone and v is not None}
    changes = difference(present, then, lambda place, _: place in gone)
    said = refused_by_the_switch(present, then) or refused_by_the_switch(then, present)
    assert bool(refuses(present, changes)) == bool(said), said


def test_names_that_move_are_no_patch() -> None:
    """Upstream takes one profile that goes and another alike that comes for a move, which its
    validator does not know."""
    present = {Place("BUFFER_PROFILE", name, "size"): "0" for name in ("DLCP_Q7", "theirs")}
    present = {
        **present,
        Place("BUFFER_PROFILE", "DLCP_Q7", "dynamic_th"): "1",
        VERSION: "version_202511_01",
    }
    then = {
        place._replace(name=place.name.replace("Q7", "Q6")): value
        for place, value in present.items()
    }
    changes = difference(present, then, lambda *_: True)
    assert refused_by_the_switch(present, then)
    assert any("gives a BUFFER_PROFILE another name" in text for text in refuses(present, changes))


def test_a_table_that_comes_as_a_whole_is_no_patch() -> None:
    present = {VERSION: "version_202511_01"}
    then = {**present, Place("BUFFER_PROFILE", "DLCP_Q7", "size"): "0"}
    assert refused_by_the_switch(present, then)
    [said] = refuses(present, difference(present, then, lambda *_: False))
    assert "adds or removes the whole table BUFFER_PROFILE" in said


# --- what the plan says ---------------------------------------------------------------------


def test_a_release_that_is_not_said_is_a_doubt() -> None:
    tables = sonic_roce(PORTS)
    del tables["VERSIONS"]
    made = plan(*intent(), SONIC, SONIC.read(sonic_text(tables)))
    assert any("release: the configuration does not state it" in text for text in made.degraded)
    wanted, device, present = example_on("minimal", "version_202511_01", reload=False)
    assert not any(
        "does not state" in each for each in plan(wanted, device, SONIC, present).degraded
    )


def test_thresholds_that_change_in_place_depend_on_the_hwsku() -> None:
    present = SONIC.read(sonic_text(sonic_roce(PORTS)))
    first = plan(*intent(), SONIC, present)
    assert not any("in place" in text for text in first.degraded)
    larger = intent(keep='[queues]\nbuffer = "8MiB"\n[keep]\nqueues = [3, 4]\n')
    applied = after(present, first.changes)
    again = plan(*larger, SONIC, applied)
    assert not any("in place" in text for text in again.degraded)  # shares stay as they were
    moved = {
        place: "2" if place.field == "dynamic_th" and place.name.startswith("DLCP") else value
        for place, value in applied.items()
    }
    back = plan(*intent(), SONIC, moved)
    assert any("change in place" in text and "ACS-SN5600" in text for text in back.degraded)
    wanted = after(moved, back.changes)
    assert not refused_by_the_switch(moved, wanted)
    unknown = {**moved, HWSKU: "Some-Other"}
    assert refused_by_the_switch(unknown, {**wanted, HWSKU: "Some-Other"})


@pytest.mark.parametrize("version", ["version_202411_02", "version_202505_01"])
def test_curves_that_change_in_place_are_a_patch_from_202505_on(version: str) -> None:
    present = SONIC.read(sonic_text(sonic_roce(PORTS)))
    applied = after(present, plan(*intent(), SONIC, present).changes) | {VERSION: version}
    earlier = intent(keep="[queues]\nmark = [0.1, 0.3]\n[keep]\nqueues = [3, 4]\n")
    if version == "version_202505_01":
        made = plan(*earlier, SONIC, applied)
        assert not made.minutes
        assert any("change in place" in text for text in made.degraded)
        return
    with pytest.raises(Refused, match="changes green_max_threshold of a WRED_PROFILE in place"):
        plan(*earlier, SONIC, applied)


def test_what_the_release_does_not_take_back_needs_consent_as_well() -> None:
    tables: dict[str, Any] = sonic_roce(PORTS)
    for binding in tables["PORT_QOS_MAP"].values():
        del binding["pfc_enable"]
    present = SONIC.read(sonic_text(tables))
    wanted, device = intent()
    made = plan(wanted, device, SONIC, present)
    applied = after(present, made.changes)
    assert removal(wanted, device, SONIC, applied).changes
    old = {**applied, VERSION: "version_202405_02"}
    says = f"release: SONiC 202405 refuses a patch that .*{re.escape(CONSENT)}"
    with pytest.raises(Refused, match=says):
        removal(wanted, device, SONIC, old)
    with pytest.raises(Refused, match=says):
        reverse(wanted, made, device, SONIC, old)
    allowed = replace(device, reload=True)
    back: Plan
    for back in (removal(wanted, allowed, SONIC, old), reverse(wanted, made, allowed, SONIC, old)):
        assert back.disrupts == (RELOADS,)
