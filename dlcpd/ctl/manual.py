"""Writes the manual page dlcpd.toml(5) from the settings: python -m dlcpd.ctl.manual > FILE.

`deploy/pages` runs it. Source of the macros: groff_man(7).
"""

import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from dlcpd.build import VERSION
from dlcpd.ctl.explain import Setting, about, comments, settings
from dlcpd.daemon.config.tables import LocalPath

INTRODUCTION: Final = (
    "The file of the daemon, in TOML, as dlcpd --config FILE reads it. Every setting has a "
    "default, and a daemon needs no file. An unknown table or key is an error."
)
COMMANDS: Final = (
    ("dlcpctl config check FILE", "tests a file."),
    ("dlcpctl config show --running", "prints the values that the running daemon uses."),
    ("dlcpctl config diff FILE", "lists settings of the file that it does not use yet."),
    ("dlcpctl config explain KEY", "explains a key, or a table."),
)
FILES: Final = (
    ("/etc/dlcpd/dlcpd.toml", "the file that the systemd unit names."),
    ("/etc/dlcpd/keys", "key pair of this host, and keys of its peers; see dlcpctl keys."),
)


def page() -> str:
    """The whole page, in roff."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH DLCPD.TOML 5 "" "dlcpd {_escaped(VERSION)}" "dlcpd manual"'
    yield from (".SH NAME", r"dlcpd.toml \- configuration of dlcpd, the gradient transport daemon")
    yield from (".SH SYNOPSIS", ".B /etc/dlcpd/dlcpd.toml")
    yield from (".SH DESCRIPTION", _text(INTRODUCTION))
    for command, what in COMMANDS:
        yield from _item(command, what)
    for table, found in groupby(settings(), lambda setting: setting.table):
        yield from (f'.SH "[{table}]"', _text(about(table)))
        for setting in found:
            yield from _setting(setting)
        if table == "network":
            yield _text("Each of paths is a table with these keys:")
            for key, meaning in comments(LocalPath).items():
                yield from _item(key, meaning)
    yield ".SH FILES"
    for file, what in FILES:
        yield from _item(file, what)
    yield from (".SH SEE ALSO", r"\fBdlcpd\fR(8), \fBdlcpctl\fR(1)")


def _setting(setting: Setting) -> Iterator[str]:
    reason = f"Default: {setting.reason}" if setting.reason else ""
    meaning, *more = filter(None, (setting.meaning, reason, f"Allowed: {setting.allowed}"))
    yield from _item(f"{setting.key} = {setting.default}", f"{meaning.rstrip('.')}.")
    for text in more:
        yield from (".br", _text(f"{text.rstrip('.')}."))


def _item(name: str, meaning: str) -> Iterator[str]:
    """A term in bold, and text below it."""
    yield from (".TP", rf"\fB{_escaped(name)}\fR", _text(meaning))


def _text(text: str) -> str:
    """A paragraph; its first character is no request of roff."""
    return rf"\&{_escaped(text[0].upper() + text[1:])}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")


if __name__ == "__main__":
    sys.stdout.write(page())
