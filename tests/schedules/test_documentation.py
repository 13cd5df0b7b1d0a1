"""docs/collectives.md: its example runs as it stands, and the page stays short.

Its row, recipe and method run in tests/client/test_new_collective.py.
"""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "collectives.md"


def test_the_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[:2]
    assert ["check(" in block for block in blocks] == [False, True]
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "page"})  # noqa: S102  # our own page


def test_the_page_is_short_and_its_links_lead_somewhere() -> None:
    text = PAGE.read_text()
    assert len(text.splitlines()) < 90
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (PAGE.parent / target).exists(), target
