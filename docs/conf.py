"""The site of these pages: `make docs`. Their Markdown is that of code-hosting pages (CommonMark,
tables, anchors by heading), so nothing in them is for Sphinx, but for the table of contents and
docs/api.md, whose text is that of docstrings."""

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]  # it has no types

import dlcpd

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

project = "dlcpd"
version = release = dlcpd.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"dlcpd {version}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_static_path = ["site"]
html_js_files = ["copy.js"]
html_css_files = ["copy.css"]
myst_heading_anchors = 4  # as deep as headings go; links name them as code-hosting pages do
exclude_patterns = ["*.py"]
smartquotes = False  # what a configuration or a shell takes has straight ones
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what types cannot; signatures stay short
nitpick_ignore_regex = [("py:.*", ".*")]  # names of torch and numpy; links of pages are Markdown

CODE = re.compile(r"\s{4,}\S")


def in_restructured_text(
    _app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Docstrings are Markdown: code has one backtick, or four spaces below an empty line."""
    made = list[str]()
    code = False
    for number, line in enumerate(lines):
        below_empty = number > 0 and not lines[number - 1].strip()
        if CODE.match(line) and (code or below_empty):
            if not code:
                made += ["::", ""]
            code = True
        elif line.strip():
            code = False
        made.append(line if code else "".join(map(_in_text, re.split(r"(`+[^`]+`+)", line))))
    lines[:] = made


def _in_text(part: str) -> str:
    """Code between backticks, or text, in which `_` and `|` are no markup."""
    if part.startswith("`"):
        return f"``{part.strip('`')}``"
    return re.sub(r"_\b|_$|_(?=\W)|\|", r"\\\g<0>", part)


def with_titles(app: Any, doctree: nodes.document, _page: str) -> None:
    """A link whose text is a page's file name, as on a code-hosting page, shows its title."""
    for link in doctree.findall(nodes.reference):
        file = re.fullmatch(r"(?:docs/)?([\w-]+)\.md", link.astext())
        if file and file[1] in app.env.titles:
            link.children = [nodes.Text(app.env.titles[file[1]].astext())]


def setup(app: Any) -> None:
    """As of Sphinx."""
    app.connect("autodoc-process-docstring", in_restructured_text, priority=400)
    app.connect("doctree-resolved", with_titles)
