"""The memory that a daemon may have, read from files as the kernel writes them."""

import os
from pathlib import Path

import pytest

from dlcpd.daemon.config.effective import engine_configs, resolved
from dlcpd.daemon.config.tables import Config, DaemonTable
from dlcpd.ipc.memory_limit import MemoryLeft, MemoryLimit, memory_left, memory_limit

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


def written(folder: Path, membership: str, **limits: str) -> tuple[Path, Path]:
    """Folder and membership. `limits`: file, with / for __, and its text."""
    (folder / "membership").write_text(membership)
    for name, text in limits.items():
        file = folder / name.replace("__", "/").replace("_at_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return folder, folder / "membership"


def found(folder: Path, membership: str, **limits: str) -> MemoryLimit:
    return memory_limit(*written(folder, membership, **limits))


def test_the_lowest_limit_above_counts(tmp_path: Path) -> None:
    limit = found(
        tmp_path,
        "0::/system.slice/dlcpd.service\n",
        system_at_slice__dlcpd_at_service__memory_at_max=f"{900 * MIB}",
        system_at_slice__dlcpd_at_service__memory_at_high="max",
        system_at_slice__memory_at_max=f"{600 * MIB}",
        system_at_slice__memory_at_high=f"{700 * MIB}",
    )
    assert limit == MemoryLimit(600 * MIB, str(tmp_path / "system.slice/memory.max"), group=True)


def test_a_soft_limit_counts_too(tmp_path: Path) -> None:
    limit = found(tmp_path, "0::/a\n", a__memory_at_max="max", a__memory_at_high=f"{300 * MIB}")
    assert limit.size == 300 * MIB


def test_a_containers_own_root(tmp_path: Path) -> None:
    assert found(tmp_path, "0::/\n", memory_at_max=f"{400 * MIB}").size == 400 * MIB


def test_version_1_where_the_path_is_the_hosts(tmp_path: Path) -> None:
    text = "5:cpu,cpuacct:/kubepods/x\n4:memory:/kubepods/x\n0::/\n"
    assert found(tmp_path, text, memory__memory_at_limit_in_bytes=f"{MIB}").size == MIB


@pytest.mark.parametrize("text", ["", "0::/a\n", "rubbish\n", "0::/../..\n"])
def test_without_a_limit_it_is_the_machines(tmp_path: Path, text: str) -> None:
    unlimited = {"a__memory_at_max": "max", "memory_at_max": "9223372036854771712"}
    limit = found(tmp_path, text, **unlimited)
    assert limit == MemoryLimit(MACHINE, "the machine's memory", group=False)


def test_no_file_at_all(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "none", tmp_path / "nowhere").size == MACHINE


def told(monkeypatch: pytest.MonkeyPatch, limit: int, *, engines: int = 1, **daemon: int) -> object:
    there = MemoryLimit(limit, "a test", group=True)
    monkeypatch.setattr("dlcpd.daemon.config.effective.memory_limit", lambda: there)
    config = resolved(Config(daemon=DaemonTable(**daemon)))  # type: ignore[arg-type]
    [first, *_] = engine_configs(config)
    return first.memory, first.session_memory, first.sessions


def test_engines_are_told_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, 4096 * MIB) == (2048 * MIB, 512 * MIB, 64)
    assert told(monkeypatch, 100 * MIB) == (50 * MIB, 50 * MIB, 64), "never more than there is"
    assert told(monkeypatch, MIB, max_memory_bytes=8 * MIB, max_session_memory_bytes=3 * MIB) == (
        8 * MIB,
        3 * MIB,
        64,
    )


def left(folder: Path, membership: str, **files: str) -> MemoryLeft | None:
    swap = folder / "meminfo"
    swap.write_text(f"MemTotal: 1 kB\nSwapFree: {files.pop('swap', '0')} kB\n")
    return memory_left(*written(folder, membership, **files), swap)


def test_the_fullest_group_says_what_is_left(tmp_path: Path) -> None:
    stat = f"anon 7\nactive_file {3 * MIB}\ninactive_file {2 * MIB}\nslab_reclaimable {MIB}\n"
    files = {
        "a__b__memory_at_max": f"{900 * MIB}",
        "a__b__memory_at_current": f"{100 * MIB}",
        "a__memory_at_max": f"{600 * MIB}",
        "a__memory_at_current": f"{500 * MIB}",
        "a__memory_at_high": f"{MIB}",
        "a__memory_at_stat": stat,
    }
    file = str(tmp_path / "a/memory.max")
    assert left(tmp_path, "0::/a/b\n", **files) == MemoryLeft(106 * MIB, 600 * MIB, file)
    swapping = left(tmp_path, "0::/a/b\n", **files, swap="1024")
    assert swapping == MemoryLeft(107 * MIB, 600 * MIB, file)


def test_what_is_left_in_a_group_of_version_1(tmp_path: Path) -> None:
    files = {
        "memory__a__memory_at_limit_in_bytes": f"{50 * MIB}",
        "memory__a__memory_at_usage_in_bytes": f"{45 * MIB}",
        "memory__a__memory_at_stat": f"inactive_file 1\ntotal_inactive_file {MIB}\n",
        "memory__memory_at_limit_in_bytes": "9223372036854771712",
        "memory__memory_at_usage_in_bytes": f"{MIB}",
    }
    found_left = left(tmp_path, "4:memory:/a\n", **files)
    file = str(tmp_path / "memory/a/memory.limit_in_bytes")
    assert found_left == MemoryLeft(6 * MIB, 50 * MIB, file)


def test_less_than_nothing_is_nothing(tmp_path: Path) -> None:
    made = left(tmp_path, "0::/\n", memory_at_max="100", memory_at_current="200")
    assert made is not None and made.size == 0


@pytest.mark.parametrize("limits", [{}, {"memory_at_max": "max", "memory_at_current": "5"}])
def test_without_a_limit_nothing_says_what_is_left(tmp_path: Path, limits: dict[str, str]) -> None:
    assert left(tmp_path, "0::/\n", **limits) is None
