"""One event, one line, whatever is in it."""

import json

import pytest

from dlcpd.daemon import log

HOSTILE = 'a "quoted"\nlevel=error event=forged\x1b[31m \x7f \x9b \u2028 \u202e'


@pytest.mark.parametrize("style", ["logfmt", "json"])
def test_a_hostile_value_cannot_forge_a_line(
    style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure("info", style)
    log.info("joined", text=HOSTILE, rank=0)
    log.debug("not_logged")
    [line] = capsys.readouterr().err.splitlines()
    assert line.isascii() and line.isprintable()
    if style == "json":
        fields = json.loads(line)
        assert (fields["event"], fields["rank"], fields["text"]) == ("joined", 0, HOSTILE)
    else:
        assert line.endswith(f" level=info event=joined text={json.dumps(HOSTILE)} rank=0")


@pytest.mark.parametrize("style", ["logfmt", "json"])
def test_a_long_value_is_cut(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("debug", style)
    log.error("failed", code="peer_lost", text="x" * 100_000, data=["x" * 100] * 1000)
    line = capsys.readouterr().err
    assert "peer_lost" in line
    assert len(line) < 2 * log.MAX_VALUE + 200


def test_an_empty_value_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("warning", "logfmt")
    log.warning("odd", text="", sign="=")
    assert capsys.readouterr().err.endswith('text="" sign="="\n')


@pytest.mark.parametrize("style", ["logfmt", "json"])
def test_the_journal_learns_the_priority_of_each_line(
    style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure("debug", style, journal=True)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line[:3] for line in capsys.readouterr().err.splitlines()] == [
        "<7>", "<6>", "<4>", "<3>"
    ]  # fmt: skip
    log.configure("debug", style)
