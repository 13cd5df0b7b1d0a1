"""A folder that is held open: names are looked up in it, and no link is followed."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlcpd.ipc.held_folder import HeldFolder, holding, read_trusted
from dlcpd.ipc.safe_path import UnsafePath

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def held(place: Path) -> Iterator[HeldFolder]:
    with HeldFolder.open(place) as folder:
        yield folder


def test_files_come_and_go_by_name(held: HeldFolder, place: Path) -> None:
    held.replace("a", b"one")
    held.replace("a", b"two", sync=True)
    assert held.read("a") == b"two" and held.read("a", 1) == b"t"
    assert (place / "a").stat().st_mode & 0o777 == 0o600
    held.rename("a", "b")
    assert held.names() == ["b"] and held.has("b") and not held.has("a")
    held.remove("b")
    held.remove("b", missing_ok=True)
    with pytest.raises(FileNotFoundError):
        held.remove("b")


def test_what_is_new_replaces_nothing(held: HeldFolder) -> None:
    held.replace("a", b"one")
    with pytest.raises(FileExistsError):
        held.new("a")
    with pytest.raises(FileExistsError), held.replacing("a", exclusive=True):
        pass
    with held.replacing("b", exclusive=True) as file:
        file.write(b"new")
    held.new_folder("c").close()
    with pytest.raises(FileExistsError):
        held.new_folder("c")
    assert (held.read("a"), held.read("b")) == (b"one", b"new")
    assert sorted(held.names()) == ["a", "b", "c"]


def test_what_fails_leaves_what_was_there(held: HeldFolder) -> None:
    held.replace("a", b"one")

    def fail() -> None:
        with held.replacing("a") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (held.names(), held.read("a")) == (["a"], b"one")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a"])
def test_what_is_no_name_is_refused(held: HeldFolder, name: str) -> None:
    for act in (held.read, held.new, held.remove, held.status, held.folder, held.new_folder):
        with pytest.raises(UnsafePath, match="is no name of a file"):
            act(name)


OPENS: dict[str, Callable[[HeldFolder, str], object]] = {
    "read": lambda held, name: held.read(name),
    "write": lambda held, name: held.descriptor_of(name, os.O_WRONLY),
    "lock": lambda held, name: held.descriptor_of(name, os.O_RDWR | os.O_CREAT),
    "look": lambda held, name: held.descriptor_of(name, os.O_PATH),
}


@pytest.mark.parametrize("opens", OPENS.values(), ids=list(OPENS))
def test_no_link_is_followed(
    held: HeldFolder, place: Path, opens: Callable[[HeldFolder, str], object]
) -> None:
    (place / "real").write_text("text")
    (place / "link").symlink_to("real")
    (place / "nowhere").symlink_to("absent")
    for name in ("link", "nowhere"):
        with pytest.raises(UnsafePath, match=f"{name} is a link, which is not followed"):
            opens(held, name)
    assert not (place / "absent").exists()


@pytest.mark.parametrize("opens", OPENS.values(), ids=list(OPENS))
def test_what_is_no_file_is_refused_and_not_waited_for(
    held: HeldFolder, place: Path, opens: Callable[[HeldFolder, str], object]
) -> None:
    os.mkfifo(place / "pipe")
    with pytest.raises(OSError, match=r"pipe is no regular file|No such device"):
        opens(held, "pipe")


@needs_root
@pytest.mark.parametrize("opens", OPENS.values(), ids=list(OPENS))
def test_a_file_of_another_user_is_refused(
    held: HeldFolder, place: Path, opens: Callable[[HeldFolder, str], object]
) -> None:
    (place / "a").touch()
    os.chown(place / "a", 65534, 65534)
    with pytest.raises(UnsafePath, match=r"a belongs to user id 65534; .*: chown 0 "):
        opens(held, "a")


def test_a_folder_in_it_is_ours_alone_and_no_link(held: HeldFolder, place: Path) -> None:
    held.folder("a", make=0o700).close()
    (place / "link").symlink_to("a")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        held.folder("link")
    for mode in (0o777, 0o1777, 0o775):
        (place / "a").chmod(mode)
        os.chown(place / "a", -1, 0)
        with pytest.raises(UnsafePath, match="a: others may write to it"):
            held.folder("a")


def test_the_folder_stays_the_one_that_was_opened(held: HeldFolder, place: Path) -> None:
    away = place.with_name(f"{place.name}-away")
    place.rename(away)
    place.mkdir()
    try:
        held.replace("a", b"one")
        assert os.listdir(away) == ["a"] and not os.listdir(place)
    finally:
        place.rmdir()
        away.rename(place)


def test_links_of_ours_lead_to_what_is_read(place: Path) -> None:
    (place / "real").mkdir()
    (place / "real" / "a").write_text("secret")
    (place / "real" / "a").chmod(0o600)
    (place / "data").symlink_to("real")
    (place / "a").symlink_to("data/a")
    (place / "b").symlink_to(place / "data" / ".." / "a")
    for name in ("a", "b"):
        assert read_trusted(place / name, 100, forbidden=0o077) == b"secret"
    assert read_trusted(place / "a", 3, forbidden=0) == b"sec"
    (place / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        read_trusted(place / "loop", 1, forbidden=0)
    with pytest.raises(FileNotFoundError):
        read_trusted(place / "absent", 1, forbidden=0)


def test_a_mode_that_lets_others_in_is_named_with_the_cure(place: Path) -> None:
    (place / "a").touch()
    (place / "a").chmod(0o666)
    with pytest.raises(UnsafePath, match=r"mode 0666; others may read it: chmod 600 /"):
        read_trusted(place / "a", 1, forbidden=0o077)
    with pytest.raises(UnsafePath, match=r"mode 0666; others may write it: chmod 664 /"):
        read_trusted(place / "a", 1, forbidden=0o002)


def test_a_path_is_held_by_its_folder(place: Path) -> None:
    with holding(place / "new" / "deep" / "a", make=0o700) as (folder, name):
        folder.replace(name, b"one")
    assert (place / "new" / "deep" / "a").read_bytes() == b"one"
    assert (place / "new").stat().st_mode & 0o777 == 0o700


def test_what_killed_writers_left_of_a_file_goes_with_the_next_write(
    held: HeldFolder, place: Path
) -> None:
    for name in ("a", "b"):
        child = os.fork()
        if not child:
            with held.replacing(name) as file:
                file.write(b"secret")
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
    other = next(name for name in held.names() if name.startswith("b."))
    (place / f"a.{'0' * 16}.new").symlink_to(place / other)
    held.replace("a", b"one")
    assert set(held.names()) == {"a", other, f"a.{'0' * 16}.new"}, "a link is no file of ours"


def test_a_file_that_is_being_written_is_not_swept(held: HeldFolder) -> None:
    with held.replacing("a") as file:
        file.write(b"late")
        held.replace("a", b"early")
    assert held.read("a") == b"late" and held.names() == ["a"]
