"""The page of the failure drill: a section for each fault, with lines of the tools."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dlcp_lab.faults.breakages import Breakage, Tool
from dlcp_lab.faults.drill_tools import Heard

BEGIN: Final = "<!-- drill: begin -->"
END: Final = "<!-- drill: end -->"
WIDTH: Final = 200  # characters of a line that is shown
MARGIN: Final = 100  # characters of a line of prose


def wrapped(text: str) -> list[str]:
    """Lines of a paragraph of a page."""
    return textwrap.wrap(text, MARGIN, break_long_words=False, break_on_hyphens=False)


def render(breakage: Breakage, heard: Sequence[Heard]) -> str:
    """The section of a fault on the page."""
    lines = [
        f"### {breakage.title}",
        "",
        *wrapped(f"Fault: {breakage.how}. {breakage.meaning}"),
        "",
        "```text",
    ]
    for one in filter(lambda each: each.voice.shown, heard):
        where = (
            f"rank {one.voice.host}"
            if one.voice.tool is Tool.TRAINER
            else (f"host{one.voice.host}")
        )
        lines.append(f"{where}, {one.voice.tool}:")
        lines += [f"  {line[:WIDTH]}{' ...' if len(line) > WIDTH else ''}" for line in one.lines]
    return "\n".join([*lines, "```"])


def write(file: Path, sections: Sequence[str]) -> None:
    """Put the sections between their marks."""
    before, _, rest = file.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    file.write_text(f"{before}{BEGIN}\n" + "\n\n".join(sections) + f"\n{END}{after}")
