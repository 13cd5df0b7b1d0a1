"""What the pages of the project have in fences, as who renders them sees it."""

import re
from dataclasses import dataclass
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
    tokens = MarkdownIt().parse(page.read_text())
    return [
        Block(page.name, token.info.strip(), token.content)
        for token in tokens
        if token.type == "fence"
    ]
