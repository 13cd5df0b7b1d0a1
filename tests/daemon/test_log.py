"""One event, one line, whatever is in it."""

import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcpd.contract.errors import DlcpError
from dlcpd.daemon import log
from dlcpd.daemon.journal import MESSAGE_IDS
from dlcpd.daemon.peers.membership import Link, Membership
from dlcpd.daemon.sessions.proof import Proof
from dlcpd.daemon.sessions.session import LocalSession

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
    log.warning("odd", text="", sign="=", session=None)  # that there is none needs no words
    assert capsys.readouterr().err.endswith('text="" sign="="\n')


@pytest.mark.parametrize("style", ["logfmt", "json"])
def test_a_journal_that_does_not_answer_learns_the_priority_of_each_line(
    style: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log.configure("debug", style, to_journal=tmp_path / "nobody")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line[:3] for line in capsys.readouterr().err.splitlines()] == [
        "<7>",
        "<6>",
        "<4>",
        "<3>",
    ]
    log.configure("debug", style)


class Nobody:
    """A client that hears nothing."""

    uid = 0

    def joined(self, session: int, arena_bytes: int, descriptors: list[int]) -> None: ...

    def refused(self, error: DlcpError) -> None: ...

    def lost(self, error: DlcpError) -> None: ...


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    """What journald listens on: a socket that takes datagrams."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "journal"))
        made.settimeout(5.0)
        log.configure("debug", "logfmt", to_journal=tmp_path / "journal")
        yield made
        log.configure("debug", "logfmt")


def parsed(entry: bytes) -> dict[str, str]:
    """The fields of an entry, by the protocol's own rules."""
    found = {}
    while entry:
        line, _, rest = entry.partition(b"\n")
        key, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        assert key.decode() not in found
        found[key.decode()] = value.decode()
        entry = rest
    return found


def test_an_entry_has_fields_to_find_it_by(
    capsys: pytest.CaptureFixture[str], journal: socket.socket
) -> None:
    log.warning("path_down", session="of a test", peer=3, path=1, loss=0.25, nothing=None)
    entry = parsed(journal.recv(1 << 16))
    message = entry.pop("MESSAGE")
    assert message.partition(" level=")[2].startswith("warning event=path_down session=")
    assert entry == {
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "dlcpd",
        "DLCPD_EVENT": "path_down",
        "MESSAGE_ID": MESSAGE_IDS["path_down"],
        "DLCPD_SESSION": "of a test",
        "DLCPD_PEER": "3",
        "DLCPD_PATH": "1",
        "DLCPD_LOSS": "0.25",
    }
    assert not capsys.readouterr().err, "it is in the journal once"


def test_a_session_is_a_job_and_a_rank_and_a_peer_a_rank_on_a_host(
    journal: socket.socket,
) -> None:
    link = Link(3, "beta", "tcp://10.0.0.2:5000", "key", 1)
    membership = Membership("train-0123456789abcdef", 2, 7, "alpha", [], {}, {3: link})
    session = LocalSession(1, membership, Nobody(), 0, 1.0, Proof.HOST)
    log.info("peer_gone", session=session, peer=link)
    entry = parsed(journal.recv(1 << 16))
    assert {key: value for key, value in entry.items() if key.startswith("DLCPD_")} == {
        "DLCPD_EVENT": "peer_gone",
        "DLCPD_JOB": "train",
        "DLCPD_LAUNCH": "train-0123456789abcdef",
        "DLCPD_RANK": "2",
        "DLCPD_PEER": "3",
        "DLCPD_PEER_HOST": "beta",
    }


def test_a_hostile_value_forges_no_field(journal: socket.socket) -> None:
    log.info("joined", text="a\nPRIORITY=0\nMESSAGE_ID=b\n", long="x" * 100_000, odd="\ud800")
    entry = parsed(journal.recv(1 << 16))
    assert entry["PRIORITY"] == "6" and "MESSAGE_ID" not in entry
    assert entry["DLCPD_TEXT"] == "a\nPRIORITY=0\nMESSAGE_ID=b\n"
    assert len(entry["DLCPD_LONG"]) == log.MAX_VALUE
    assert entry["DLCPD_ODD"] == "\\ud800"


def test_a_journal_that_is_overrun_holds_nobody_up(
    capsys: pytest.CaptureFixture[str], journal: socket.socket
) -> None:
    log.configure("info", "logfmt", to_journal=Path(journal.getsockname()))  # this test's stderr
    for _ in range(5000):  # nobody reads
        log.info("joined", text="x" * log.MAX_VALUE)
    assert capsys.readouterr().err.startswith("<6>ts=")


def test_identifiers_are_128_bits_and_each_ones_own() -> None:
    assert len(set(MESSAGE_IDS.values())) == len(MESSAGE_IDS)
    assert all(len(bytes.fromhex(text)) == 16 for text in MESSAGE_IDS.values())


def test_the_page_names_every_identifier_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    rows = dict(re.findall(r"(?m)^\| `(\w+)` \| `([0-9a-f]{32})` \|$", page))
    assert rows == MESSAGE_IDS


# --- a reader that stops ---------------------------------------------------------------------


def test_a_reader_that_stops_holds_nobody_up_and_hears_how_much_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dlcpd.daemon.log_stream.PATIENCE", 0.0)
    reads, writes = os.pipe()
    with open(reads, "rb", buffering=0) as pipe, open(writes, "w", encoding="ascii") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        log.configure("info", "json")
        logged = 0
        for logged in range(1, 1001):
            log.info("joined", number=logged, text="x" * 1000)
        seen = pipe.read(1 << 20)
        log.info("last")
        rest = pipe.read(1 << 20).decode()
    shown = seen.decode().splitlines()
    assert [json.loads(line)["number"] for line in shown] == list(range(1, len(shown) + 1))
    last, lost = map(json.loads, rest.splitlines())
    assert (last["event"], lost["event"], lost["level"]) == ("last", "log_lost", "warning")
    assert lost["lines"] == logged - len(shown) > 0


def test_a_reader_that_is_late_gets_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcpd.daemon.log_stream.PATIENCE", 60.0)
    reads, writes = os.pipe()
    found = list[bytes]()

    def read() -> None:
        with open(reads, "rb") as pipe:
            time.sleep(0.2)
            found.extend(pipe)

    reader = threading.Thread(target=read)
    reader.start()
    with open(writes, "w", encoding="ascii") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        log.configure("info", "json")
        for number in range(200):
            log.info("joined", number=number, text="x" * 1000)
    reader.join(60.0)
    assert [json.loads(line)["number"] for line in found] == list(range(200))
