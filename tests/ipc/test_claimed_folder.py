"""Folders of killed processes are removed, and only those: never a live process's or a user's."""

import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlcpd.ipc.claimed_folder import claim, sweep
from dlcpd.ipc.held_folder import HeldFolder
from dlcpd.ipc.scratch import Scratch

NAME = f"ours-x{'0' * 8}"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldFolder]:
    with tempfile.TemporaryDirectory() as name, HeldFolder.open(name) as folder:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield folder


def killed(act: Callable[[], object]) -> None:
    """Run `act` in a process that is then killed."""
    child = os.fork()
    if not child:
        kept = act()
        os.kill(os.getpid(), signal.SIGKILL)
        del kept
    os.waitpid(child, 0)


def test_what_a_killed_process_left_is_removed_with_what_it_holds(root: HeldFolder) -> None:
    def work() -> HeldFolder:
        made = claim(root, "ours-")
        made.new_folder("inner").new("file").close()
        return made

    killed(work)
    [left] = root.names()
    assert stat.S_IMODE(root.status(left).st_mode) == 0o700
    assert sweep(root, "ours-") == [left]
    assert not root.names()


def test_a_folder_stays_while_any_process_has_it_open(root: HeldFolder) -> None:
    made = claim(root, "ours-")
    os.set_inheritable(made.descriptor, True)
    other = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    made.close()
    assert not sweep(root, "ours-")
    other.communicate()
    assert sweep(root, "ours-") and not root.names()


def test_what_only_looks_like_one_stays(root: HeldFolder) -> None:
    there = root.path / "there"
    there.mkdir()
    (there / "file").touch()
    (root.path / NAME).symlink_to(there)
    (root.path / f"{NAME[:-1]}1").touch()
    (root.path / f"{NAME}0").mkdir()
    (root.path / "ours-20261127").mkdir()  # a user's
    before = sorted(root.names())
    assert not sweep(root, "ours-")
    assert sorted(root.names()) == before and (there / "file").exists()


def test_a_link_in_it_is_removed_and_not_followed(root: HeldFolder) -> None:
    there = root.path / "there"
    there.mkdir()
    (there / "file").touch()
    (root.path / NAME).mkdir(0o700)
    (root.path / NAME / "link").symlink_to(there)
    assert sweep(root, "ours-") == [NAME]
    assert (there / "file").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
def test_what_another_user_owns_stays(root: HeldFolder) -> None:
    (root.path / NAME).mkdir(0o700)
    os.chown(root.path / NAME, 65534, 65534)
    assert not sweep(root, "ours-") and root.has(NAME)


def test_scratch_is_removed_with_its_block_or_by_the_next_one(root: HeldFolder) -> None:
    killed(lambda: Scratch("ours-"))
    assert len(root.names()) == 1
    with Scratch("ours-") as path, Scratch("ours-") as other:
        (Path(path) / "file").touch()
        assert sorted(root.names()) == sorted([Path(path).name, Path(other).name])
    assert not root.names()
