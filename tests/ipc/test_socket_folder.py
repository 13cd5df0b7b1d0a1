"""The folder of a private daemon's socket: safe from other users, and nothing stays behind."""

import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp_client.ipc.private_socket import PrivateSocket
from dlcpd.ipc import safe_path
from dlcpd.ipc.safe_path import UnsafePath, open_folder
from dlcpd.ipc.socket_folder import SocketFolder, sweep


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_only_this_user_enters_it_and_it_is_removed(root: Path) -> None:
    made = SocketFolder.make(str(root))
    with made.listen():
        assert stat.S_IMODE(Path(made.address).parent.stat().st_mode) == 0o700
    made.remove()
    assert not list(root.iterdir())


def test_what_a_killed_process_left_is_removed_and_what_is_held_stays(root: Path) -> None:
    held = SocketFolder.make(str(root))
    child = os.fork()
    if not child:
        killed = SocketFolder.make(str(root))
        killed.listen()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(root.iterdir())) == 2
    sweep([root / "missing", root])
    assert list(root.iterdir()) == [held.folder.path]
    held.remove()


def test_the_next_start_removes_what_was_left_in_any_of_its_folders(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = root / "first", root / "second"
    for folder in (first, second):
        folder.mkdir()
    for last in (str(second), str(first)):  # the second start has another folder than the first
        SocketFolder.make(last).let_go()  # as at the end of a killed process
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(first))
    monkeypatch.setenv("TMPDIR", str(second))
    with PrivateSocket() as private_socket:
        assert [*first.iterdir(), *second.iterdir()] == [Path(private_socket.name).parent]


def test_a_folder_above_that_others_may_write_to_is_refused(root: Path) -> None:
    above, inner = root / "above", root / "above" / "inner"
    inner.mkdir(parents=True)
    above.chmod(0o777)
    with pytest.raises(UnsafePath, match=f"{above}: others may write to it"):
        open_folder(inner)
    above.chmod(0o1777)
    os.close(open_folder(inner)[0])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
def test_what_another_user_owns_on_the_way_is_refused(root: Path) -> None:
    inner = root / "above" / "inner"
    inner.mkdir(parents=True)
    link = root / "link"
    link.symlink_to(inner)
    os.close(open_folder(link)[0])
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(UnsafePath, match="link is a link of another user"):
        open_folder(link)
    os.chown(root / "above", 65534, 65534)
    with pytest.raises(UnsafePath, match="above belongs to another user"):
        open_folder(inner)


def test_the_id_that_stands_for_hidden_ones_is_trusted_where_it_is_nobodys(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container without all ids, / may belong to it."""
    (root / "overflowuid").write_text("4711\n")
    monkeypatch.setattr(safe_path, "_OVERFLOW", root / "overflowuid")
    maps = {"0 1000 1\n": True, "0 100000 65536\n": False, "0 0 4294967295\n": False, "": False}
    for number, (rows, trusted) in enumerate(maps.items()):
        users, file = root / f"user-{number}", root / f"uid_map-{number}"
        users.touch()  # another namespace: what is known of one is not asked again
        file.write_text(rows)
        monkeypatch.setattr(safe_path, "_USERS", users)
        monkeypatch.setattr(safe_path, "_UID_MAP", file)
        assert (4711 in safe_path.trusted_owners()) == trusted, rows
