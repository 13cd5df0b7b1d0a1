"""Generated pages are what their definitions and measurements give today."""

import re
from typing import Final

from docs import performance, platforms, reference
from tests.pages import ROOT

# Told by control to an engine, or by a test to another: nobody sets them.
INTERNAL: Final = {"DLCPD_ENGINE_CONFIG"}


def test_the_page_is_what_the_generator_gives() -> None:
    assert reference.PAGE.read_text() == reference.page(), "make configuration-reference"


def test_the_table_of_platforms_is_what_the_generator_gives() -> None:
    assert platforms.PAGE.read_text() == platforms.page(), "make configuration-reference"


def test_the_page_of_measurements_is_what_the_generator_gives() -> None:
    assert performance.PAGE.read_text() == performance.page(), "make configuration-reference"


def test_every_setting_says_what_it_means() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(?:.* \|)? ([^|]*) \|$", reference.page(), re.MULTILINE)
    assert len(rows) > 60
    assert [name for name, meaning in rows if not meaning or meaning.startswith(";")] == []


def test_every_variable_that_the_code_reads_is_on_the_page() -> None:
    code = {file for package in ("dlcpd", "client") for file in (ROOT / package).rglob("*.py")}
    code.remove(ROOT / "dlcpd/daemon/journal.py")  # names of the journal's fields
    read = {name for file in code for name in re.findall(r'"(DLCPD_\w+)"', file.read_text())}
    listed = set(re.findall(r"`(DLCPD_\w+)` \|", reference.page()))
    assert read - INTERNAL == listed
