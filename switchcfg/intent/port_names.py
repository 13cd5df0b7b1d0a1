"""Names of ports: what each platform calls them, and ranges of them. Pure."""

import re
from collections.abc import Mapping
from typing import Final

MAX_PORTS: Final = 1024  # of one range: more than a chassis has

# Platform -> (what a port's name looks like, an example). Nothing that passes can end a line,
# quote or comment of a configuration.
PORT_PATTERNS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "sonic": (re.compile(r"Ethernet\d{1,4}"), "Ethernet0"),
    "eos": (re.compile(r"Ethernet\d{1,3}(/\d{1,3}){0,2}"), "Ethernet1/1"),
    "nxos": (re.compile(r"Ethernet\d{1,3}/\d{1,3}(/\d{1,2})?"), "Ethernet1/1"),
    "nvue": (re.compile(r"swp\d{1,3}(s\d{1,2})?"), "swp1"),
    "junos": (re.compile(r"(et|xe|ge)-\d{1,2}/\d{1,2}/\d{1,3}(:\d{1,2})?"), "et-0/0/0"),
    "linux": (re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,14}"), "eth0"),
    "openconfig": (re.compile(r"[A-Za-z][A-Za-z0-9/:._-]{0,31}"), "Ethernet1"),
}
_RANGE: Final = re.compile(r"([^\[\]]*)\[(\d{1,4})-(\d{1,4})(?:/(\d{1,2}))?\]([^\[\]]*)")


def expand(text: str) -> list[str]:
    """Ethernet0, 4, 8 and 12 for "Ethernet[0-12/4]"; a name without brackets is itself.

    Raises: ValueError.
    """
    found = _RANGE.fullmatch(text)
    if not found:
        if "[" in text or "]" in text:
            raise ValueError(f"{text!r}: a range is [FIRST-LAST] or [FIRST-LAST/STEP]")
        return [text]
    first, last, step = int(found[2]), int(found[3]), int(found[4] or 1)
    if first > last or not step:
        raise ValueError(f"{text!r}: an empty range")
    numbers = range(first, last + 1, step)
    if len(numbers) > MAX_PORTS:
        raise ValueError(f"{text!r}: {len(numbers)} ports, at most {MAX_PORTS}")
    return [f"{found[1]}{number}{found[5]}" for number in numbers]
