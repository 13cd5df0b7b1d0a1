"""The failure drill: the part that takes seconds is run, and the page shows what is asserted."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dlcp_lab.faults.breakages import BREAKAGES, Breakage, Tool
from dlcp_lab.faults.drill import Drill, drills
from dlcp_lab.faults.drill_page import BEGIN, END, wrapped
from dlcp_lab.faults.kinds import Fault

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "operations.md"
PEER_TIMEOUT: Final = 4.0  # seconds; see test_matrix
# One training lives through all but the last of them.
CHEAP: Final = [
    breakage
    for breakage in BREAKAGES
    if breakage.fault in (Fault.CUT_PATH, Fault.PAUSE_TRAINER, Fault.KILL_DAEMON)
]


@pytest.fixture(scope="module")
def drill() -> Iterator[Drill]:
    with drills(PEER_TIMEOUT) as made:
        yield made


@pytest.mark.timeout(400)  # a training starts, on a machine that tests load
@pytest.mark.parametrize("breakage", CHEAP, ids=lambda b: str(b.fault))
def test_every_tool_says_what_the_page_shows(breakage: Breakage, drill: Drill) -> None:
    for heard in drill.run(breakage):
        assert not heard.missing, f"{heard.voice.tool} on host{heard.voice.host}: {heard.all}"


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda b: str(b.fault or "memory"))
def test_the_page_shows_every_line_that_is_asserted(breakage: Breakage) -> None:
    shown = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    section = shown.partition(f"### {breakage.title}\n")[2].partition("\n### ")[0]
    said = "\n".join(wrapped(f"Fault: {breakage.how}. {breakage.meaning}"))
    assert section.startswith(f"\n{said}\n")
    for voice in filter(lambda each: each.shown, breakage.voices):
        who = f"rank {voice.host}" if voice.tool is Tool.TRAINER else f"host{voice.host}"
        said = section.partition(f"\n{who}, {voice.tool}:\n")[2]
        lines = re.match(r"(?:  .*\n)*", said)
        assert lines
        for pattern in voice.lines:
            assert any(re.search(pattern, line[2:]) for line in lines[0].splitlines()), pattern
