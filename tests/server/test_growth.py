"""Operations leave nothing behind; `python -m tests.server.growth 10000` looks for longer."""

from pathlib import Path

from tests.server.growth import run

MOST_FILES = 10  # of two shards: a lock, two snapshots and their logs each


def test_nothing_grows(tmp_path: Path) -> None:
    before, after = run(tmp_path, 250)
    assert after["version"] == 250
    for name in ("descriptors", "threads", "descriptors of daemons", "keys", "arena"):
        assert after[name] <= before[name], (name, before, after)
    assert after["files"] <= MOST_FILES and after["held"] <= before["held"] + 4
