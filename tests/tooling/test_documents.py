"""README and docs: what they name exists, and what they tell to type is understood."""

import ast
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from dlcp_client.server.config import ServerConfig
from dlcp_client.server.config import parse as parse_server
from dlcpd.cli.extensions import installed
from dlcpd.ctl.arguments import parser as dlcpctl
from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import Config
from switchcfg.cli.arguments import parser as switchcfg_parser
from switchcfg.cli.main import COMMANDS
from tests import pages
from tests.pages import PAGES, ROOT

PACKAGES = ("", "client", "bench", "dlcpd", "client/dlcp_client", "bench/dlcp_lab")
OURS = ("dlcp_client", "dlcp_lab", "dlcpd", "switchcfg")


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, text) of every fenced block of a language; "" stands for blocks without one."""
    found = [block for page in PAGES for block in pages.blocks(page)]
    return [(block.page, block.text) for block in found if block.language == language]


def commands(program: str) -> list[str]:
    typed = [line for _, text in [*blocks("sh"), *blocks("")] for line in text.splitlines()]
    # Neither comments nor where the output goes are for the program.
    return [re.split(" [#>]", line)[0].strip() for line in typed if line.startswith(program + " ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_are_where_the_page_says(page: Path) -> None:
    for name in re.findall(r"(?<![\w./])[\w/]+\.py\b", page.read_text()):
        found = any((ROOT / package / name).is_file() for package in PACKAGES)
        assert found or list(ROOT.glob(f"*/**/{name}")), name


def test_every_test_that_the_page_of_security_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "security.md").read_text()))
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert named - set(re.findall(r"^ *(?:async )?def (test_\w+)", tests, re.MULTILINE)) == set()
    assert len(named) > 30


@pytest.mark.parametrize("line", commands("dlcpctl"))
def test_a_line_of_dlcpctl_is_understood(line: str) -> None:
    options = dlcpctl({}, installed()).parse_args(shlex.split(line)[1:])
    assert callable(options.run)


@pytest.mark.parametrize("line", commands("switchcfg"))
def test_a_line_of_switchcfg_is_understood(line: str) -> None:
    assert switchcfg_parser(None).parse_args(shlex.split(line)[1:]).command in COMMANDS


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_a_configuration_is_accepted(page: str, text: str) -> None:
    if text.startswith("[server]"):
        assert isinstance(parse_server(text, page), ServerConfig)
    else:
        assert isinstance(parse(text, page), Config)


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_what_a_python_block_imports_of_ours_exists(page: str, text: str) -> None:
    for node in ast.walk(ast.parse(text, page)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            module = import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    import_module(f"{node.module}.{alias.name}")
        if isinstance(node, ast.Import) and node.names[0].name.split(".")[0] in OURS:
            import_module(node.names[0].name)


@pytest.mark.parametrize("name", ["tuning.md", "when-not.md"])
def test_a_figure_of_advice_is_one_that_was_measured(name: str) -> None:
    measured = (ROOT / "docs" / "performance.md").read_text()
    figures = re.findall(r"(?<![\d.])\d+\.\d+(?!\.?\d)", (ROOT / "docs" / name).read_text())
    not_measured = {"3.11"}  # a version of Python
    assert [one for one in figures if one not in measured and one not in not_measured] == []
    assert len(figures) > 4


def test_a_figure_of_the_readme_is_one_that_was_measured() -> None:
    measured = (ROOT / "docs" / "performance.md").read_text()
    text, _ = pages.sections(ROOT / "README.md")["What you gain"]
    figures = set(re.findall(r"\d+\.\d+|\d{3,}", text)) - {"0.01", "0.02"}  # bounds
    assert figures - set(re.findall(r"\d+\.\d+|\d{3,}", measured)) == set()
    assert len(figures) > 8


def test_the_pages_have_something_to_check() -> None:
    assert len(commands("dlcpctl")) > 8 and len(commands("switchcfg")) > 4
    assert blocks("toml") and len(blocks("python")) > 6
