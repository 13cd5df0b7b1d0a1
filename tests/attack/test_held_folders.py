"""Files that are opened by name: no other user brings another file, or folder, in their place."""

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from dlcp_client.environment import Environment
from dlcp_client.job.secret import job_secret
from dlcp_client.numpy.file_store import FileStore
from dlcp_client.server.journal import Journal
from dlcp_client.server.journal_entry import JournalEntry
from dlcpd.contract.errors import DlcpError
from dlcpd.ctl import main as dlcpctl
from dlcpd.daemon.clients import server
from dlcpd.daemon.clients.access import Access
from dlcpd.daemon.peers import key_files
from dlcpd.daemon.peers.authorised import Authorised
from dlcpd.daemon.peers.key_files import Identity, read_identity, read_public
from dlcpd.daemon.peers.keys import KeyPair
from dlcpd.inspection.recording import EPOCH
from dlcpd.ipc import held_folder
from dlcpd.ipc.held_folder import HeldFolder
from dlcpd.ipc.safe_path import UnsafePath
from dlcpd.ipc.socket_folder import SocketFolder
from dlcpd.ledger.generations import Generations
from dlcpd.page import page_token as token
from switchcfg.cli import records
from switchcfg.cli.main import main as switchcfg
from switchcfg.drivers.gnmi import GnmiDriver
from switchcfg.drivers.login import Login
from switchcfg.drivers.note import Note
from switchcfg.errors import SwitchcfgError
from switchcfg.plan.plan import Plan

CHECK: Final = 116
STRANGER: Final = 65534
SECRET: Final = "0123456789abcdef" * 2
IDENTITY: Final = Identity("node", KeyPair.of_secret(bytes(range(32))))
PLAN: Final = Plan("sw", "linux", "lab", "f" * 64, (), (), ())
INTENT: Final = Path(held_folder.__file__).parents[2] / "switchcfg" / "examples" / "minimal.toml"
REFUSED: Final = r"others may write to it|belongs to another user|belongs to user id"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


class Refused(Exception):
    """A command ended with an error."""


def store(place: Path) -> None:
    FileStore(place).set("a", "1")


def journal(place: Path) -> None:
    made = Journal(place)
    try:
        made.snapshot(JournalEntry({"version": 0}, np.zeros(3, np.float32)))
        made.append(JournalEntry({"version": 1}, np.zeros(3, np.float32)))
    finally:
        made.close()


def ledger(place: Path) -> None:
    made = Generations(place / "session", 1 << 20)
    made.begin()
    made.append(b"record")
    made.store(7, np.zeros(3, np.uint8))
    made.close()


def said(words: list[str], command: Callable[[list[str]], int] = dlcpctl.main) -> None:
    """Raises: Refused with what the command says."""
    with pytest.MonkeyPatch.context() as patch:
        told: list[str] = []
        patch.setattr("sys.stderr.write", told.append)
        if command(words):
            raise Refused("".join(told))


def new_identity(place: Path) -> None:
    said(["keys", "new", "--host", "a", "--keys", str(place)])


def authorise(place: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "node.pub"
        file.write_text(IDENTITY.public.text())
        said(["keys", "authorise", str(file), "--keys", str(place)])


def revoke(place: Path) -> None:
    said(["keys", "revoke", IDENTITY.host, "--keys", str(place)])


def trace(place: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "a", Path(folder) / "b"
        ours.write_text(json.dumps({"traceEvents": [], "otherData": {EPOCH: 0}}))
        theirs.write_text(json.dumps({"traceEvents": []}))
        said(["trace", "--join", str(ours), str(theirs), "-o", str(place / "trace.json")])


def as_json(place: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        said(["keys", "list", "--keys", folder, "--json", str(place / "keys.json")])


def report(place: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "metrics.jsonl"
        file.write_text(json.dumps({"dlcp/steps": 1, "dlcp/bytes": 2, "step": 1}) + "\n")
        said(["report", str(file), "-o", str(place / "report.html")])


def identity(place: Path) -> None:
    assert read_identity(place / "identity.toml") == IDENTITY


def public(place: Path) -> None:
    assert read_public(place / "node.toml") == IDENTITY.public


def authorised(place: Path) -> None:
    assert Authorised(place, "own").allows(IDENTITY.pair.text)


def secret(place: Path) -> None:
    assert job_secret(Environment(secret_file=place / "secret"))


def page_token(place: Path) -> None:
    assert token.from_file(place / "secret") == SECRET


def record(place: Path) -> None:
    records.prepare(place, "sw")
    records.keep(place, PLAN, {})
    assert records.last(place, "sw").before == {}


def note(place: Path) -> None:
    made = Note(place / "sw.eos")
    made.write("commit", "who", 60.0)
    assert made.read()
    made.drop()


def render(place: Path) -> None:
    said(["render", str(INTENT), "--out", str(place)], switchcfg)


def gnmi(place: Path) -> None:
    driver = GnmiDriver("sw", "127.0.0.1", login=Login("", "", "", "u", "p"), folder=place)
    assert asyncio.run(driver.pending()) is None


def session_socket(place: Path) -> None:
    server.listen(place / "s.sock", Access.configured(())).close()


def private_socket(place: Path) -> None:
    made = SocketFolder.make(str(place))
    made.listen().close()
    made.remove()


def with_files(place: Path) -> None:
    for name, text, mode in (
        ("identity.toml", IDENTITY.text(), 0o600),
        ("node.toml", IDENTITY.public.text(), 0o644),
        ("secret", SECRET, 0o600),
    ):
        key_files.write(place / name, text, mode, replace=True)


def with_authorised(place: Path) -> None:
    file = place / "authorised" / "node.toml"
    key_files.write(file, IDENTITY.public.text(), 0o644, replace=True, make=0o755)


def with_public(place: Path) -> None:
    key_files.write(place / "node.toml", IDENTITY.public.text(), 0o644, replace=True)


@dataclass(frozen=True)
class Kind:
    """`act` opens files of one kind in a folder; `names` of them, each of which a link replaces."""

    act: Callable[[Path], None]
    names: tuple[str, ...] = ()
    before: Callable[[Path], None] = lambda _: None  # puts there what is read
    exchange: str | None = ""  # the folder that is exchanged while it is open; None: bind(2) has
    # no open folder, so the path is used, on which nobody else can exchange a folder

    @property
    def reads(self) -> bool:
        """Whether it acts on what one file says."""
        return self.before is not Kind.before and bool(self.names)


KINDS: Final = [
    Kind(store, ("lock", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")),
    Kind(journal, ("lock", "snapshot-0", "log-0", "snapshot-0.new")),
    Kind(ledger, ("session",)),
    Kind(new_identity, ("identity.toml",)),
    Kind(authorise, ("authorised/node.toml",), exchange="authorised"),
    Kind(revoke, (), with_authorised, exchange="authorised"),
    Kind(trace, ("trace.json",)),
    Kind(as_json, ("keys.json",)),
    Kind(report, ("report.html",)),
    Kind(identity, ("identity.toml",), with_files),
    Kind(public, ("node.toml",), with_files),
    Kind(authorised, ("node.toml",), with_public, exchange=None),
    Kind(secret, ("secret",), with_files),
    Kind(page_token, ("secret",), with_files),
    Kind(record, ("sw/.probe",), exchange="sw"),
    Kind(note, ("sw.eos",)),
    Kind(render, ("leaf1.sonic",)),
    Kind(gnmi, exchange=None),
    Kind(session_socket, ("s.sock.lock",), exchange=None),
    Kind(private_socket, exchange=None),
]
ERRORS: Final = (DlcpError, SwitchcfgError, OSError, Refused)


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def of(kind: Kind) -> str:
    return kind.act.__name__


def text_of(error: BaseException) -> str:
    return str(error.strerror if isinstance(error, UnsafePath) else error)


@pytest.mark.parametrize("kind", KINDS, ids=of)
@pytest.mark.parametrize(("user", "mode"), [(0, 0o777), (0, 0o775), (STRANGER, 0o755)],
                         ids=["all may write", "a group may write", "of another user"])  # fmt: skip
@pytest.mark.parametrize("level", ["the folder above", "the folder"])
@pytest.mark.check(CHECK, "folders that another user could exchange or fill are refused by name")
def test_a_folder_that_others_could_exchange_is_refused(
    root: Path, kind: Kind, user: int, mode: int, level: str
) -> None:
    above, place = root / "above", root / "above" / "place"
    place.mkdir(parents=True)
    kind.before(place)
    kind.act(place)  # it works where nobody else can
    kind.before(place)
    bad = above if level == "the folder above" else place
    os.chown(bad, user, 1000 if mode == 0o775 else 0)
    bad.chmod(mode)
    before = sorted(place.rglob("*"))
    with pytest.raises(ERRORS) as caught:
        kind.act(place)
    said = text_of(caught.value)
    assert f"{bad}" in said and f"user id {user}" in said, said
    assert "chmod go-w" in said or "use a folder whose whole path" in said
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("kind", KINDS, ids=of)
@pytest.mark.check(CHECK, "a folder like /tmp, to which all write, may be above")
def test_below_a_sticky_folder_all_kinds_work(root: Path, kind: Kind) -> None:
    above, place = root / "above", root / "above" / "place"
    place.mkdir(parents=True)
    above.chmod(0o1777)
    kind.before(place)
    kind.act(place)


@pytest.mark.parametrize("owner", [0, STRANGER], ids=["link of ours", "link of another user"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.names], ids=of)
@pytest.mark.check(CHECK, "a link in the place of any file leads nowhere")
def test_a_link_in_the_place_of_a_file_changes_nothing(root: Path, kind: Kind, owner: int) -> None:
    victim = root / "victim"
    for name in kind.names:
        place = root / name.replace("/", "-")
        place.mkdir()
        victim.write_text("as it was")
        before = victim.stat()
        kind.before(place)
        link = place / name
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
        os.chown(link, owner, owner, follow_symlinks=False)
        try:
            kind.act(place)
        except ERRORS:
            pass
        except AssertionError:
            assert kind.reads  # nothing is read through it
        now = victim.stat()
        assert victim.read_text() == "as it was"
        assert (now.st_mode, now.st_uid, now.st_mtime_ns) == (
            before.st_mode,
            before.st_uid,
            before.st_mtime_ns,
        )


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.before is not Kind.before and kind.names], ids=of
)
@pytest.mark.check(CHECK, "what is read through a link of another user, or in its folder, is not")
def test_what_is_read_is_read_through_links_of_ours_alone(root: Path, kind: Kind) -> None:
    """As Kubernetes mounts secrets: each is a link into a folder beside."""
    place, real = root / "place", root / "place" / "..data"
    real.mkdir(parents=True)
    kind.before(real)
    [name] = kind.names
    (place / name).symlink_to(f"..data/{name}")
    kind.act(place)
    os.chown(place / name, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(ERRORS, match="is a link of another user"):
        kind.act(place)
    os.chown(place / name, 0, 0, follow_symlinks=False)
    real.chmod(0o777)
    with pytest.raises(ERRORS, match="others may write to it"):
        kind.act(place)
    real.chmod(0o755)
    os.chown(real / name, STRANGER, STRANGER)
    with pytest.raises(ERRORS, match=f"belongs to user id {STRANGER}; .* chown 0 "):
        kind.act(place)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.exchange is not None], ids=of)
@pytest.mark.check(CHECK, "a folder exchanged between check and use: the held one is used")
@pytest.mark.parametrize("turn", [1, 2, 3])
def test_an_exchanged_folder_is_not_used(
    root: Path, kind: Kind, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`turn`: at which opening of the folder it is exchanged. Some kinds open it once."""
    place, away = root / "place", root / "away"
    place.mkdir()
    kind.before(place)
    goes = place / (kind.exchange or "")
    open_ = HeldFolder.open.__func__  # type: ignore[attr-defined]
    opens: list[Path] = []

    def opened(cls: type[HeldFolder], /, path: Path, **more: Any) -> HeldFolder:
        found: HeldFolder = open_(cls, path, **more)
        if found.path == goes:
            opens.append(goes)
            if len(opens) == turn:
                goes.rename(away)
                goes.mkdir()
                os.chown(goes, STRANGER, STRANGER)
        return found

    monkeypatch.setattr(HeldFolder, "open", classmethod(opened))
    refused = ""
    try:
        kind.act(place)
    except ERRORS as exc:
        refused = text_of(exc)
    assert opens, "nothing was tried"
    if len(opens) >= turn:
        assert not list(goes.iterdir())
    # Where the path is asked for once more, it leads to the stranger's folder by now.
    assert not refused or "belongs to another user" in refused
    assert turn > 1 or refused or list(away.iterdir())


def stranger_exchanges(above: Path, stop: int) -> None:
    """In a child that is another user: put a folder of its own in the store's place, always."""
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    os.write(stop, b"ready")
    while True:
        try:
            os.rename(above / "store", above / f"away-{os.urandom(4).hex()}")
            os.mkdir(above / "store")
        except OSError:
            pass


@pytest.mark.check(CHECK, "a stranger exchanges a store's folder without end: nothing goes there")
def test_a_stranger_who_exchanges_a_store_gets_nothing(root: Path) -> None:
    root.chmod(0o755)
    above = root / "above"
    above.mkdir()
    above.chmod(0o777)
    (above / "store").mkdir(0o700)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            stranger_exchanges(above, writing)
        finally:
            os._exit(0)
    try:
        assert os.read(reading, 5) == b"ready"
        for _ in range(200):
            with pytest.raises(DlcpError, match=REFUSED):
                FileStore(above / "store")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
    assert not [file for file in above.rglob("*") if file.is_file()]


@pytest.mark.parametrize(
    ("act", "name"),
    [(store, "lock"), (journal, "lock"), (journal, "snapshot-0"), (journal, "log-0"),
     (session_socket, "s.sock.lock")],
)  # fmt: skip
@pytest.mark.check(CHECK, "a link in the place of a lock, a snapshot or a log: refused by name")
def test_a_link_to_what_would_be_opened_is_refused(
    root: Path, act: Callable[[Path], None], name: str
) -> None:
    place, elsewhere = root / "place", root / "elsewhere"
    place.mkdir()
    act(place)
    (place / name).unlink(missing_ok=True)
    elsewhere.touch(0o600)
    (place / name).symlink_to(elsewhere)

    def again() -> None:
        if act is not journal:
            act(place)
            return
        made = Journal(place)
        try:
            list(made.recover())
        finally:
            made.close()

    with pytest.raises((DlcpError, OSError)) as caught:
        again()
    assert f"{place / name} is a link, which is not followed" in text_of(caught.value)


@pytest.mark.check(CHECK, "a socket's folder is not made where others could exchange it")
def test_no_folder_is_made_where_it_could_be_exchanged(root: Path) -> None:
    root.chmod(0o777)
    with pytest.raises(DlcpError, match=f"{root}: others may write to it"):
        session_socket(root / "missing")
    assert list(root.iterdir()) == []


def test_an_open_store_is_not_followed_to_where_its_name_leads(root: Path) -> None:
    opened, place = FileStore(root / "store"), root / "store"
    place.rename(root / "away")
    place.mkdir()
    os.chown(place, STRANGER, STRANGER)
    opened.set("a", "1")
    opened.claim(0)
    assert opened.get("a") == b"1"
    assert not list(place.iterdir())


def test_a_result_goes_to_a_device_as_before(root: Path) -> None:
    said(["keys", "list", "--keys", str(root), "--json", "/dev/null"])
    assert Path("/dev/null").is_char_device()
