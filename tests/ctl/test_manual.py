"""The manual page dlcpd.toml(5): all settings, and roff without errors."""

import shutil
import subprocess

import pytest

from dlcpd.ctl.explain import settings
from dlcpd.ctl.manual import page

MACROS = {"TH", "SH", "TP", "B", "br"}


def test_every_setting_is_explained() -> None:
    lines = page().splitlines()
    for setting in settings():
        at = lines.index(rf"\fB{setting.key} = {setting.default}\fR".replace("-", r"\-"))
        assert lines[at - 1] == ".TP"
        assert lines[at + 1].startswith(r"\&")


def test_no_text_is_a_request_of_roff() -> None:
    for line in page().splitlines():
        assert line[0] != "'"
        assert line[0] != "." or line[1:].split()[0] in MACROS


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_has_no_warning() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-c"],
        input=page(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "machine's host name" in " ".join(done.stdout.split())
