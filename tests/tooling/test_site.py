"""The site of docs/ builds without a warning, works without a network, and leads nowhere wrong."""

import importlib
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pytest

import dlcp_client
from tests.pages import PAGES, ROOT, blocks

LOADED: Final = {  # attributes whose value a browser fetches by itself
    "script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src",
    "object": "data", "embed": "src", "video": "src", "audio": "src", "use": "href",
}  # fmt: skip


def builder() -> list[str]:
    """The command line of `make docs`, up to its two folders."""
    planned = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "docs"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.replace("\\\n", " ")
    [line] = [line for line in planned.splitlines() if "sphinx-build" in line]
    _, *options, source, target = shlex.split(line)
    assert (source, target) == ("docs", "site")
    return [sys.executable, "-m", "sphinx", *options]


def built(source: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    """The site of a folder, by the settings of this one's."""
    command = builder()
    command[command.index("build/doctrees")] = str(target.with_suffix(".doctrees"))
    return subprocess.run(
        [*command, "-c", str(ROOT / "docs"), str(source), str(target)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=280,  # a busy machine takes minutes; pytest allows 300 s
    )


class Tags(HTMLParser):
    """What a page loads, links to, and can be linked to at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads, self.links, self.anchors = list[str](), list[str](), {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors.add(found.get("id", ""))
        if tag in LOADED:
            self.loads.append(found.get(LOADED[tag], ""))
        elif tag == "a" and "href" in found:
            self.links.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site") / "html"
    done = built(ROOT / "docs", target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def tags(site: Path) -> dict[Path, Tags]:
    return {page.resolve(): Tags(page.read_text()) for page in site.rglob("*.html")}


def test_every_page_is_in_it(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file(), page


def test_the_readme_lists_the_pages_as_the_site_does() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    listed = [
        name
        for block in re.findall(r":hidden:\n\n(.*?)```", index, re.DOTALL)
        for name in block.split()
    ]
    read_on = (ROOT / "README.md").read_text().partition("## Read on")[2]
    assert re.findall(r"\(docs/([\w-]+)\.md\)", read_on) == listed


def test_nothing_is_loaded_from_elsewhere(site: Path, tags: dict[Path, Tags]) -> None:
    loads = [url for found in tags.values() for url in found.loads]
    assert len(loads) > 100
    assert [url for url in loads if outside(url)] == []
    for sheet in site.rglob("*.css"):
        urls = re.findall(r"url\(\s*[\"']?([^)\"']+)|@import\s+[\"']([^\"']+)", sheet.read_text())
        assert [url for pair in urls for url in pair if url and outside(url)] == [], sheet


def outside(url: str) -> bool:
    """Whether a browser would ask another host for it."""
    return bool(urlsplit(url).netloc) or urlsplit(url).scheme not in ("", "data")


def test_links_lead_to_pages_and_anchors_that_are_there(tags: dict[Path, Tags]) -> None:
    links = [(page, link) for page, found in tags.items() for link in found.links]
    inside = [(page, link) for page, link in links if not outside(link)]
    assert [(page.name, link) for page, link in inside if not there(page, link, tags)] == []
    assert len(inside) > 1000


def there(page: Path, link: str, tags: dict[Path, Tags]) -> bool:
    """Whether a link of `page` leads to a file, and where that is a page, to one of its anchors."""
    where = urlsplit(link)
    target = (page.parent / unquote(where.path)).resolve() if where.path else page
    if target.suffix != ".html":
        return target.is_file()
    return target in tags and unquote(where.fragment) in tags[target].anchors


WRONG: Final = {
    "a page": "[there](nowhere.md)",
    "an anchor": "[there](other.md#nowhere)",
    "a file": "[there](../nowhere.py)",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_link_that_leads_nowhere_is_an_error(what: str, tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    toc = "```{toctree}\nother\n```\n"
    (source / "index.md").write_text(f"# A page\n\n{WRONG[what]}\n\n{toc}")
    (source / "other.md").write_text("# Another page\n\n## Somewhere\n")
    done = built(source, tmp_path / "html")
    assert done.returncode != 0
    assert "nowhere" in done.stderr


# --- names of the client -----------------------------------------------------------------------

REFERENCE: Final = ROOT / "docs" / "api.md"
MODULES: Final = (  # that users import names from
    "dlcp_client", "dlcp_client.ddp", "dlcp_client.cross_step", "dlcp_client.fsdp",
    "dlcp_client.fused", "dlcp_client.fused.language", "dlcp_client.gossip", "dlcp_client.ps",
    "dlcp_client.spmd", "dlcp_client.elastic", "dlcp_client.numpy", "dlcp_client.reporting",
)  # fmt: skip


def names_of(module: ModuleType) -> list[str]:
    """Its public names: `__all__`, or what it defines."""
    listed: list[str] | None = getattr(module, "__all__", None)
    return listed or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and inspect.isfunction(value)
        and value.__module__ == module.__name__
    ]


PUBLIC: Final = [
    (module, name) for module in MODULES for name in names_of(importlib.import_module(module))
]


def value_of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def test_each_public_name_of_the_client_is_on_its_page(tags: dict[Path, Tags]) -> None:
    [anchors] = [found.anchors for page, found in tags.items() if page.name == "api.html"]
    text = REFERENCE.read_text()
    missing = []
    for module, name in PUBLIC:
        known = f"{module}.{name}" in anchors
        known |= module == "dlcp_client.numpy" and hasattr(dlcp_client, name)  # the same one
        if not known and f"`{name}`" not in text and f"`{module}.{name}`" not in text:
            missing.append(f"{module}.{name}")
    assert missing == [] and len(anchors) > 200


def bare(name: str, value: Any) -> Iterator[str]:
    """Names without a docstring: a function, or a class and its public methods. A method has one if
    a protocol of its module has it."""
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return
    promised = {
        method
        for one in vars(sys.modules[value.__module__]).values()
        if getattr(one, "_is_protocol", False)
        for method in vars(one)
    }
    below = vars(value) if inspect.isclass(value) else {}
    documented = {name: value} | {
        f"{name}.{key}": one
        for key, one in below.items()
        if isinstance(one, FunctionType | property) and key[0] != "_" and key not in promised
    }
    yield from (key for key, one in documented.items() if not inspect.getdoc(one))


def test_each_public_name_of_the_client_has_a_docstring() -> None:
    found = [(f"{module}.{name}", value_of(module, name)) for module, name in PUBLIC]
    assert [one for name, value in found for one in bare(name, value)] == []
    assert list(bare("f", lambda: None)) == ["f"]


def test_pages_import_names_that_are_on_the_page() -> None:
    imported = set[tuple[str, str]]()
    for block in (block for page in PAGES for block in blocks(page) if block.language == "python"):
        for line in re.findall(r"^from (dlcp_client[\w.]*) import ([\w, ]+)", block.text, re.M):
            imported |= {(line[0], name.split()[0]) for name in line[1].split(",")}
    known = {*PUBLIC, *((name.rpartition(".")[0], name.rpartition(".")[2]) for name in MODULES)}
    assert imported - known == set() and len(imported) > 10


def test_a_file_name_in_a_link_is_a_title_on_the_site_and_code_can_be_copied(site: Path) -> None:
    text = (site / "page.html").read_text()
    assert re.search(r'<a [^>]*href="metrics.html"[^>]*>(?:<[^>]*>)*Metrics<', text)
    assert ".md</" not in re.sub(r"<pre.*?</pre>|<code.*?</code>", "", text, flags=re.DOTALL)
    assert 'src="_static/copy.js' in text and (site / "_static" / "copy.js").is_file()
    assert "Copyright" not in text
