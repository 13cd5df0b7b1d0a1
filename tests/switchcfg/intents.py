"""Intents for tests: the examples, and one that tests change a line of."""

from pathlib import Path
from typing import Final

import switchcfg
from switchcfg.intent.intent import Intent, parse

EXAMPLES: Final = {
    file.stem: file.read_text(encoding="utf-8")
    for file in sorted((Path(switchcfg.__file__).parent / "examples").glob("*.toml"))
}
NAME: Final = "intent.toml"
WHOLE: Final = """\
schema = 1

[fabric]
name = "pod1"
prefix = "DLCP"
spray = "hash"

[queues]
buffer = "512KiB"
rest = "back"
ecn = true
mark = [0.2, 0.5]
drop = [[1.0, 1.0], [0.2, 0.5]]

[classes]
control = { rank = 0, dscp = [48], ecn = ["ect0"] }
front = { rank = 1, dscp = [34, 38], ecn = ["ect0", "not-ect"], share = 0.4 }
back = { rank = 2, dscp = [10, 14], ecn = ["ect0", "not-ect"], share = 0.2 }

[keep]
queues = [4]
ports = ["Ethernet[96-100/4]"]

[keep.dscp]
24 = 3

[[device]]
name = "leaf1"
platform = "sonic"
address = "192.0.2.1"
side = "A"

[[device.ports]]
names = ["Ethernet[0-8/4]", "Ethernet40"]
rate = "100Gbit"

[[device.ports]]
group = "UP"
names = ["Ethernet60"]
rate = "400Gbit"
buffer = "1MiB"

[[device]]
name = "leaf2"
platform = "eos"

[[device.ports]]
names = ["Ethernet1/1"]
rate = "25Gbit"
"""


def whole(before: str = "", after: str = "") -> Intent:
    """WHOLE with one piece of text replaced."""
    assert WHOLE.count(before) == 1 or not before
    return parse(WHOLE.replace(before, after), NAME)
