"""NETCONF of Junos: RPCs of a device, and its replies as text. Pure."""

import re
from html import escape, unescape
from typing import Final

from switchcfg.errors import BadState
from switchcfg.platforms.platform import Netconf, Step


def _compared(reply: str) -> str:
    """The output of `show | compare` in a reply to get-configuration. Raises: BadState."""
    found = re.search(
        r"<configuration-output[^>]*?(?:/>|>(.*?)</configuration-output>)", reply, re.DOTALL
    )
    if found is None:
        raise BadState("the answer to a comparison has no <configuration-output>")
    return unescape(found[1] or "").strip("\n")


def _lines(reply: str) -> str:
    """The `set` lines in a reply to get-configuration. A reply with configuration in another form
    is returned unchanged, any other reply as ""."""
    found = re.search(r"<configuration-set[^>]*>(.*?)</configuration-set>", reply, re.DOTALL)
    if found:
        return unescape(found[1])
    return reply if re.search(r"<configuration(-text|-information)?[ >]", reply) else ""


def _load(step: Step) -> str:
    """The RPC that loads a step's lines into the candidate."""
    return (
        '<load-configuration action="set"><configuration-set>'
        f"{escape(step.payload, quote=False)}</configuration-set></load-configuration>"
    )


NETCONF: Final = Netconf(
    ask='<get-configuration database="committed" format="set"/>',
    said=_lines,
    load=_load,
    undo='<load-configuration rollback="1"/>',
    compare='<get-configuration compare="rollback" rollback="0" format="text"/>',
    compared=_compared,
)
