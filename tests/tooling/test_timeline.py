"""The picture of docs/network.md is what the core does today, and so are the times in its text."""

import re
from typing import Final
from xml.etree import ElementTree

import pytest

from docs import timeline
from docs.timeline import LOST, PICTURE, ROUND_TRIP, Run
from tests import pages
from tests.pages import ROOT

SMALL: Final = ROUND_TRIP / 20
SECTION: Final = "What an operation waits for"


@pytest.fixture(scope="module")
def shown() -> tuple[Run, Run, Run]:
    return timeline.runs()


def names(run: Run) -> set[str]:
    return {group.sent[0].name for group in run.groups}


def test_the_picture_is_what_the_generator_gives(shown: tuple[Run, Run, Run]) -> None:
    assert PICTURE.read_text() == timeline.picture(shown), "make configuration-reference"
    ElementTree.fromstring(PICTURE.read_text())  # noqa: S314  # our own file


def test_asking_takes_as_long_as_sending_again(shown: tuple[Run, Run, Run]) -> None:
    exact, asked, _ = shown
    assert abs(asked.took - exact.took) < SMALL


def test_a_permit_saves_a_round_trip(shown: tuple[Run, Run, Run]) -> None:
    _, asked, permitted = shown
    assert asked.took - permitted.took == pytest.approx(ROUND_TRIP, abs=SMALL)


def test_the_result_waits_for_the_answer_only_without_a_permit(
    shown: tuple[Run, Run, Run],
) -> None:
    waits = [end - begin for begin, end in (each.wait for each in shown)]
    assert waits == pytest.approx([ROUND_TRIP, ROUND_TRIP, 0.0], abs=SMALL)


def test_each_panel_has_its_datagrams(shown: tuple[Run, Run, Run]) -> None:
    exact, asked, permitted = shown
    assert {"NACK", "retransmitted"} < names(exact)
    assert {"FINAL", "ACK"} < names(asked) and "FINAL (WAIVED)" not in names(asked)
    assert {"FINAL (WAIVED)", "ACK"} < names(permitted) and "FINAL" not in names(permitted)
    assert not {"NACK", "retransmitted"} & (names(asked) | names(permitted))
    assert [each.waived for each in shown] == [0, len(LOST), len(LOST)]


def test_the_page_states_these_times(shown: tuple[Run, Run, Run]) -> None:
    text, _ = pages.sections(ROOT / "docs" / "network.md")[SECTION]
    stated = re.findall(r"^\| .* \| ([\d.]+) ms \|$", text, re.MULTILINE)
    assert stated == [f"{1e3 * each.took:.1f}" for each in shown]
