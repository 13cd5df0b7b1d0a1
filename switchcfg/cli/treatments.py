"""`switchcfg ports --before --after`: what two configurations treat differently by code point."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from switchcfg.cli.output import put, put_json, tell
from switchcfg.errors import BadState
from switchcfg.intent.port_ranges import folded
from switchcfg.model.known import model_of
from switchcfg.model.values import SwitchModel, differences, grouped
from switchcfg.plan.account import UNREAD, refusals
from switchcfg.platforms.known import PLATFORMS


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration in a file."""

    name: str  # of the file
    model: SwitchModel
    unread: Sequence[str]  # lines near QoS that switchcfg does not understand, and why


def configuration(platform: str, text: str, name: str) -> Configuration:
    """The configuration in a file. Raises: BadState."""
    try:
        state = PLATFORMS[platform].read(text)  # refuses the text of another platform
        ports = {place.name for place in state if place.kind == UNREAD}
        unread = folded(refusals("the switch", state, ports), ports)
        return Configuration(name, model_of(platform, text), unread)
    except BadState as exc:
        raise BadState(f"{name}: {exc}") from exc


def put_differences(
    before: Configuration, after: Configuration, options: argparse.Namespace
) -> bool:
    """Print the differences of two configurations, and what was not read; whether there are
    differences."""
    found = [*differences(before.model, after.model)]
    if options.json:
        unread = {each: list(one.unread) for each, one in (("before", before), ("after", after))}
        put_json({"differences": [asdict(each) for each in found], "unread": unread})
    else:
        for line in grouped(found):
            put(line)
        for each in (before, after):
            for line in each.unread:
                tell(f"{each.name}: {line}")
    return bool(found)
