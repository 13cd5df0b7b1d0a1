"""Writes the table of platforms in docs/switches-platforms.md from their rows and abilities.

`make configuration-reference` runs it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from switchcfg.intent.known import KNOWN
from switchcfg.platforms.known import PLATFORMS

PAGE: Final = Path(__file__).with_name("switches-platforms.md")
BEGIN: Final = "<!-- begin: make configuration-reference -->\n"
END: Final = "<!-- end -->\n"
COLUMNS: Final = 7


def table() -> str:
    """The table: a row per platform."""
    head, *rows = (f"| {' | '.join(row)} |\n" for row in _rows())
    return "".join((head, f"|{'---|' * COLUMNS}\n", *rows))


def _rows() -> Iterator[tuple[str, ...]]:
    yield (
        "`platform`",
        "switches",
        "a port",
        "a port-channel is named as",
        "to reach devices",
        "drop precedences of a queue",
        "lossless classes",
    )
    for name, each in KNOWN.items():
        able, channels = PLATFORMS[name].able, each.ports.channels
        bound = f"`{channels.name}1`" if channels and channels.name else "its members"
        yield (
            f"`{name}`",
            each.title,
            f"`{each.ports.example}`",
            bound if channels else "on the device",
            f"`dlcpd[{each.extra}]`" if each.driver else "`--present` only",
            str(able.curves) if able.curves > 1 else "1, and 1 by ECN",
            str(able.lossless or "-"),
        )


def page() -> str:
    """The page with the table of today."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
