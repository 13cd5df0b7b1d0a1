"""What the pages of the project have in fences, as who renders them sees it."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block; `language` is what stands behind its first fence."""

    page: str
    language: str
    text: str

    @property
    def typed(self) -> list[str]:
        """Its lines as somebody types them: without comments, continued ones as one."""
        lines = self.text.replace("\\\n", " ").splitlines()
        bare = [" ".join(re.split(r"(?:^|\s+)# ", line)[0].split()) for line in lines]
        return [line for line in bare if line]


def blocks(page: Path) -> list[Block]:
    """All of them, from top to bottom."""
    return _blocks(page.name, page.read_text())


def sections(page: Path) -> dict[str, tuple[str, list[Block]]]:
    """Text and blocks by heading of the second level."""
    parts = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: (part, _blocks(page.name, part)) for part in parts}


def shape(text: str) -> str:
    """The part that stays when numbers, versions, and the host before a colon are others."""
    text = re.sub(r"^[\w.-]+: dlcpd [^\s,]+", "HOST: dlcpd VERSION", text)
    return re.sub(r"\d+(\.\d+)?", "0", text)


@cache
def _blocks(page: str, text: str) -> list[Block]:
    return [
        Block(page, token.info.strip(), token.content)
        for token in MarkdownIt().parse(text)
        if token.type == "fence"
    ]
