"""From one intent with lossless classes to another, on a switch without PFC of others: whatever the
way, nothing of the last one is left over, and nothing is left at the end."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchcfg.intent.intent import Intent, parse
from switchcfg.plan.plan import plan, removal
from switchcfg.plan.state import State, after
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.intents import NAME
from tests.switchcfg.stock import sonic_text
from tests.switchcfg.test_sonic_lossless import bare

HEAD: Final[dict[str, Callable[[], str]]] = {
    "sonic": lambda: sonic_text(bare()),
    "nvue": lambda: "nv set system hostname leaf\n",
}
PORTS: Final = {"sonic": ["Ethernet0", "Ethernet4"], "nvue": ["swp1", "swp2"]}
MAYBE = st.sampled_from


# What of a class differs from intent to intent, line by line; "" where it says nothing of it.
ASKED: Final = (
    ("share = 10", "share = 50"), ("", "ecn = false"), ("", 'cable = "300m"'), ("", "cnp = 50"),
)  # fmt: skip
TWO: Final[dict[str, list[tuple[int, ...]]]] = {"sonic": [(3, 4), (2, 5)], "nvue": []}
LOWEST: Final = {"sonic": 1, "nvue": 0}  # SONiC refuses 0, which would pause all traffic


@st.composite
def intents(draw: Any, platform: str) -> Intent:
    text = 'schema = 1\n[fabric]\nname = "lab"\n'
    for priority in draw(MAYBE([(), (3,), (4,), (LOWEST[platform],), (7,), *TWO[platform]])):
        text += f'[[lossless]]\nname = "l{priority}"\npriority = {priority}\n'
        text += f"dscp = [{40 + priority}]\n"
        text += "".join(f"{draw(MAYBE(lines))}\n" for lines in ASKED)
    text += f'[[device]]\nname = "leaf"\nplatform = "{platform}"\n'
    text += "reload = true\n" * (platform == "sonic")
    first, second = PORTS[platform]
    ways = [{"A": [first, second]}, {"A": [first]}, {"A": [first], "B": [second]}]
    for group, names in draw(MAYBE(ways)).items():
        text += f'[[device.ports]]\ngroup = "{group}"\nnames = {json.dumps(names)}\n'
        text += 'rate = "100Gbit"\n'
    return parse(text, NAME)


def pfc(state: State) -> dict[str, str]:
    """What says that there is PFC, or headroom for it."""
    kinds = ("pfc", "interface pfc", "scheduler weight", "pool", "BUFFER_PG")
    return {
        f"{place}": value
        for place, value in state.items()
        if place.kind.startswith(kinds) or place.field == "pfc_enable"
    }


@pytest.mark.parametrize("platform", HEAD)
@settings(max_examples=15)
@given(data=st.data())
def test_no_intent_leaves_anything_of_the_one_before(platform: str, data: st.DataObject) -> None:
    kind = PLATFORMS[platform]
    bare_state = state = kind.read(HEAD[platform]())
    for wanted in data.draw(st.lists(intents(platform), min_size=1, max_size=4)):
        [device] = wanted.devices
        state = after(state, plan(wanted, device, kind, state).changes)
        assert not plan(wanted, device, kind, state).changes
        fresh = after(bare_state, plan(wanted, device, kind, bare_state).changes)
        assert pfc(state) == pfc(fresh)
    left = after(state, removal(wanted, device, kind, state).changes)
    assert pfc(left) == pfc(bare_state)
    assert not [place for place, value in left.items() if "DLCP" in f"{place} {value}"]
