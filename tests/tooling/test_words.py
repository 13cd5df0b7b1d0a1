"""Pages, docstrings, comments and messages are plain English: no word of the list, no headless
clause."""

import ast
import re
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT

# A word that hides its subject, or an old name; `docs/glossary.md` has the terms.
WORDS = (
    "nobody", "somebody", "whoever", "anybody", "someone", "so many", "by turns", "of late",
    "for ever", "ours", "theirs", "one's own", "given up", "gave up", "give up", "gives up",
    "giving up", "drop rank", "repaired", "went without", "goes without", "go without",
    "dead man", "critical range", "that is none",
)  # fmt: skip
FOUND = re.compile(r"(?<![\w`./-])(" + "|".join(WORDS) + r")(?![\w`-])", re.IGNORECASE)
# "What the engine waits for is counted." hides its noun; a question and a heading do not.
HEADLESS = re.compile(r"(?:^|(?<=[.:;] ))(?:What|Who|Whoever)\b[^.?:|]*\.(?:\s|$)", re.MULTILINE)
# In messages also: "is no port" for "is not a port", and clauses with "who".
OF_MESSAGES = re.compile(r"(?<!there )\bis no (?!longer)[a-z]+|(?<![\w`./$-])who\b(?![\w`\"-])")
MESSAGES = (
    "switchcfg",
    "client",
    "bench",
    "dlcpd/cli",
    "dlcpd/ctl",
    "dlcpd/doctor",
    "dlcpd/inspection",
    "dlcpd/page",
    "dlcpd/daemon/config",
)
WIDTH = 100


def prose(page: Path) -> str:
    """Without fenced blocks and code spans."""
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "`x`", text)


def too_wide(page: Path) -> list[int]:
    """Lines of prose. Tables and links cannot be wrapped; blocks show what programs print."""
    inside, found = False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        cannot = line.lstrip().startswith(("|", "!", "#")) or "](" in line
        if len(line) > WIDTH and not inside and not cannot:
            found.append(number)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_word_of_the_list(page: Path) -> None:
    assert [match[0] for match in FOUND.finditer(prose(page))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_without_its_noun(page: Path) -> None:
    assert [match[0][:60] for match in HEADLESS.finditer(prose(page))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_wrapped(page: Path) -> None:
    assert too_wide(page) == []


def test_the_checks_find_what_they_are_for() -> None:
    assert FOUND.search("It was given up of late.")
    assert not FOUND.search("`given_up` and `ours` are names")
    assert HEADLESS.search("What the engine waits for is counted.")
    assert not HEADLESS.search("What does it cost? Nothing.")


def written(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of docstrings and comments, without code spans. Reasons of `noqa` and
    `type: ignore` are comments that lie beside code: they are as short as they can be."""
    text = file.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            said = ast.get_docstring(node)
            if said:
                yield node.body[0].lineno, _plain(said)
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.search(r"noqa|type: ignore", token.string):
            yield token.start[0], _plain(token.string.lstrip("# "))


def _plain(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "`x`", " ".join(text.split()))


@pytest.mark.parametrize("package", ["dlcpd", "client", "bench", "switchcfg"])
def test_docstrings_and_comments(package: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {match[0][:60]}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, text in written(file)
        for pattern in (FOUND, HEADLESS)
        for match in pattern.finditer(text)
    ]
    assert wrong == []


def messages(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of string literals with several words, values as `x`; no docstrings. Scripts
    for devices are not prose: their texts have lines that end in ';', ' then' or 'fi'."""
    tree = ast.parse(file.read_text())
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(below) for below in ast.walk(node) if below is not node}
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "`x`" for p in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text.strip() and not re.search(r"(;| then|fi|dir=.*)$", text, re.MULTILINE):
            yield node.lineno, _plain(text)


@pytest.mark.parametrize("where", MESSAGES)
def test_messages(where: str) -> None:
    files = sorted((ROOT / where).rglob("*.py")) or [ROOT / where]
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {match[0][:60]}"
        for file in files
        for line, text in messages(file)
        for pattern in (FOUND, HEADLESS, OF_MESSAGES)
        for match in pattern.finditer(text)
    ]
    assert wrong == []


def test_the_check_of_messages_finds_what_it_is_for() -> None:
    assert OF_MESSAGES.search("swp1 is no port of eos")
    assert OF_MESSAGES.search("a file with who signs certificates")
    assert not OF_MESSAGES.search("the session is no longer open")
