"""What a shard's folder gives back, and what of it is refused rather than guessed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dlcp_client.server.journal import Journal
from dlcp_client.server.journal_entry import JournalEntry
from dlcpd.contract.errors import BadConfig, BadSnapshot, DlcpError

Damage = Callable[[Path], None]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "0")
    yield made
    made.close()


def entry(version: int) -> JournalEntry:
    return JournalEntry(
        {"version": version, "what": f"v{version}"}, np.full(100, version, np.float32)
    )


def filled(journal: Journal) -> Path:
    """Snapshots at 0, 3 and 6, of which the last two are kept; versions up to 8."""
    for version in range(9):
        if version:
            journal.append(entry(version))
        if version % 3 == 0:
            journal.snapshot(entry(version))
    journal.close()
    return journal.folder


def recovered(folder: Path) -> list[int]:
    journal = Journal(folder)
    try:
        found = list(journal.recover())
    finally:
        journal.close()
    assert all((one.arrays == one.version).all() for one in found)
    assert all(one.head["what"] == f"v{one.version}" for one in found)
    return [one.version for one in found]


def test_the_newest_snapshot_and_what_followed(journal: Journal) -> None:
    folder = filled(journal)
    assert recovered(folder) == [6, 7, 8]
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["lock", "log-3", "log-6", "snapshot-3", "snapshot-6"]


def test_an_empty_folder_has_nothing(tmp_path: Path) -> None:
    assert recovered(tmp_path / "new") == []


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0, 10, 40, -1])
def test_a_damaged_snapshot_is_replaced_by_the_one_before_and_its_log(
    journal: Journal, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = filled(journal)
    flip(folder / "snapshot-6", at)
    assert recovered(folder) == [3, 4, 5, 6, 7, 8]
    [said] = [record.getMessage() for record in caplog.records]
    assert "1 snapshots are invalid (snapshot-6: " in said and "from snapshot-3" in said


@pytest.mark.parametrize("cut", [1, 100, 420])
def test_a_torn_end_of_the_log_was_never_acknowledged(journal: Journal, cut: int) -> None:
    log = filled(journal) / "log-6"
    log.write_bytes(log.read_bytes()[:-cut])
    assert recovered(log.parent) == [6, 7]


@pytest.mark.check(115, "a bit turned in the last record: one warning, with both counts")
@pytest.mark.parametrize("at", [-1, -50, -200])
def test_a_damaged_last_record_is_told(
    journal: Journal, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(journal) / "log-6"
    flip(log, at)
    assert recovered(log.parent) == [6, 7]
    [said] = [record.getMessage() for record in caplog.records]
    assert "1 records kept, 1 dropped" in said and "a confirmed push is lost" in said


def test_a_whole_log_is_no_news(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    assert recovered(filled(journal)) == [6, 7, 8]
    assert not caplog.records


def test_blocks_that_were_never_written_are_a_torn_end(journal: Journal) -> None:
    log = filled(journal) / "log-6"
    log.write_bytes(log.read_bytes() + bytes(8192))
    assert recovered(log.parent) == [6, 7, 8]


def both_snapshots(folder: Path) -> None:
    flip(folder / "snapshot-3", 50)
    flip(folder / "snapshot-6", 50)


def a_record_among_others(folder: Path) -> None:
    flip(folder / "log-6", 50)


def garbage_after_the_log(folder: Path) -> None:
    (folder / "log-6").write_bytes((folder / "log-6").read_bytes() + b"x" * 500)


def a_record_of_the_older_log_that_is_needed(folder: Path) -> None:
    flip(folder / "snapshot-6", 50)
    flip(folder / "log-3", -1)


def no_snapshots(folder: Path) -> None:
    (folder / "snapshot-3").unlink()
    (folder / "snapshot-6").unlink()


def no_log_in_between(folder: Path) -> None:
    flip(folder / "snapshot-6", 50)
    (folder / "log-3").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        both_snapshots, a_record_among_others, garbage_after_the_log, no_snapshots,
        a_record_of_the_older_log_that_is_needed, no_log_in_between,
    ],
)  # fmt: skip
def test_what_cannot_be_restored_is_refused_by_name(journal: Journal, damage: Damage) -> None:
    folder = filled(journal)
    damage(folder)
    with pytest.raises(BadSnapshot, match=str(folder)):
        recovered(folder)


def test_one_process_has_a_folder(journal: Journal) -> None:
    with pytest.raises(BadConfig, match="another server process"):
        Journal(journal.folder)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match="file/0"):
        Journal(tmp_path / "file" / "0")


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    for mode in (0o777, 0o1777):
        tmp_path.chmod(mode)
        with pytest.raises(BadConfig, match=f"snapshots {tmp_path}: .*others may write to it"):
            Journal(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_and_nothing_more_is_written(tmp_path: Path) -> None:
    def sync(_: int) -> None:
        if full:
            raise OSError(28, "No space left on device")

    full = False
    journal = Journal(tmp_path, sync)
    journal.snapshot(entry(0))
    full = True
    with pytest.raises(DlcpError, match="No space left"):
        journal.append(entry(1))
    full = False
    with pytest.raises(DlcpError, match="its log failed"):
        journal.append(entry(1))
    full = True
    with pytest.raises(DlcpError, match="snapshot-1"):
        journal.snapshot(entry(1))
    journal.close()
