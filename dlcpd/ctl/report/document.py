"""A report as one self-contained HTML file."""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from typing import Final

from dlcpd.ctl.report.parts import Section

_WEB: Final = resources.files("dlcpd.page") / "web"
_SCRIPTS: Final = ("uplot.js", "charts.js", "timeline.js", "report.js")
_STYLES: Final = ("uplot.css", "look.css")


def document(sections: Sequence[Section], made: str) -> str:
    """`made`: a line on when and by what. The content is data for report.js, never HTML."""
    styles = [(_WEB / name).read_text() for name in _STYLES]
    scripts = [(_WEB / name).read_text() for name in _SCRIPTS]
    data = {"sections": [asdict(section) for section in sections], "made": made}
    title = " and ".join(dict.fromkeys(section.title for section in sections))[:120]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(styles, scripts)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)} - dlcpd</title>",
            '<link rel="icon" href="data:,">',
            *(f"<style>{text}</style>" for text in styles),
            '</head>\n<body class="report">',
            '<header><h1>dlcpd</h1><span class="dim"></span></header>',
            '<noscript><p class="notice">This report draws its charts with JavaScript, which is '
            "off here.</p></noscript>\n<main></main>",
            f'<script type="application/json" id="report">{_inert(data)}</script>',
            *(f"<script>{text}</script>" for text in scripts),
            "</body>\n</html>\n",
        ]
    )


def _inert(data: object) -> str:
    """JSON that cannot end its HTML element, for any names in it."""
    return json.dumps(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """A policy for these scripts and styles only; nothing from other servers."""
    return (
        f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src {_hashes(scripts)}; style-src {_hashes(styles)}"
    )


def _hashes(texts: Sequence[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
