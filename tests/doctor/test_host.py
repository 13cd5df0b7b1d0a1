"""Judgements of this host: pure, so each is shown what a host may be like."""

import resource
import socket
from pathlib import Path

import pytest

from dlcpd.doctor import cgroup, host, kernel
from dlcpd.doctor.host import Cpus, Memory
from dlcpd.doctor.kernel import ReceiveBuffer, Segmentation
from dlcpd.doctor.rows import Row, Verdict, fail, good, summary, text, warn

GIB = 1 << 30
ALL = frozenset(range(4))


def test_a_fix_belongs_to_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="a fix belongs to"):
        Row("clock", Verdict.WARN, "slow")
    with pytest.raises(ValueError, match="a fix belongs to"):
        Row("clock", Verdict.PASS, "good", "do this")


def test_rows_are_a_table_with_each_fix_below() -> None:
    rows = [good("clock", "tsc"), warn("MTU", "small", "ip link"), fail("CPUs", "none", "buy")]
    lines = text(rows).splitlines()
    assert lines[1].split() == ["pass", "clock", "tsc"]
    assert lines[3].strip() == "fix: ip link"
    assert summary(rows) == "1 pass, 1 warn, 1 fail"


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (Segmentation(gso=True, gro=True), Verdict.PASS, "passed as one"),
        (Segmentation(gso=False, gro=True), Verdict.WARN, "no GSO for UDP"),
        (Segmentation(gso=True, gro=False), Verdict.WARN, "no GRO for UDP"),
    ],
    ids=str,
)
def test_segmentation(found: Segmentation, verdict: Verdict, says: str) -> None:
    row = kernel.judge_segmentation(found, offload=True, release="4.9")
    assert row.verdict is verdict and says in row.found
    unused = kernel.judge_segmentation(found, offload=False, release="4.9")
    assert unused.verdict is Verdict.PASS


def test_segmentation_is_really_tried() -> None:
    found = kernel.look_at_segmentation()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        assert found.gso == kernel._set(sock, 103, 0)  # noqa: SLF001  # linux/udp.h


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (ReceiveBuffer(100, 100, 100), Verdict.PASS, "100 bytes granted"),
        (ReceiveBuffer(100, 100, 50), Verdict.PASS, "without CAP_NET_ADMIN it would be 50"),
        (ReceiveBuffer(100, 50, 50), Verdict.WARN, "50 of 100 bytes granted"),
        (ReceiveBuffer(100, 50, 0), Verdict.WARN, "is unknown here"),
    ],
    ids=str,
)
def test_receive_buffer(found: ReceiveBuffer, verdict: Verdict, says: str) -> None:
    row = kernel.judge_buffer(found)
    assert row.verdict is verdict and says in row.found
    assert verdict is Verdict.PASS or "net.core.rmem_max=100" in row.fix


def test_shared_memory_that_cannot_be_made_fails() -> None:
    assert kernel.judge_sealing(kernel.look_at_sealing()).verdict is Verdict.PASS
    assert kernel.judge_sealing("Operation not permitted").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("setting", "says"),
    [("", "this kernel has none"), ("never", "echo advise"), ("advise", "may have them")],
)
def test_huge_pages_are_no_reason_to_warn(setting: str, says: str) -> None:
    row = kernel.judge_huge_pages(setting)
    assert row.verdict is Verdict.PASS and says in row.found


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (Cpus(ALL, None, 1, ()), Verdict.PASS, "4 CPUs, for 1 engine and a trainer"),
        (Cpus(ALL, 2.0, 1, ()), Verdict.PASS, "time of 2 by the control group"),
        (Cpus(ALL, 1.5, 1, ()), Verdict.WARN, "share CPUs"),
        (Cpus(frozenset({0}), None, 1, ()), Verdict.WARN, "1 CPU, for 1 engine and a trainer: "),
        (Cpus(ALL, None, 2, ((2,), (3, 4))), Verdict.FAIL, "names CPU 4"),
    ],
    ids=str,
)
def test_cpus(found: Cpus, verdict: Verdict, says: str) -> None:
    row = host.judge_cpus(found)
    assert row.verdict is verdict and says in row.found


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (Memory(8 * GIB, None), Verdict.PASS, "8.0 GiB available on the host"),
        (Memory(8 * GIB, 2 * GIB), Verdict.PASS, "2.0 GiB left by memory.max"),
        (Memory(8 * GIB, GIB // 2), Verdict.WARN, "0.5 GiB left by memory.max"),
        (Memory(GIB // 2, None), Verdict.WARN, "0.5 GiB available"),
        (Memory(None, None), Verdict.PASS, "no readable limit"),
    ],
    ids=str,
)
def test_memory(found: Memory, verdict: Verdict, says: str) -> None:
    row = host.judge_memory(found)
    assert row.verdict is verdict and says in row.found


@pytest.mark.parametrize(
    ("hard", "verdict"),
    [(1024, Verdict.WARN), (4096, Verdict.PASS), (resource.RLIM_INFINITY, Verdict.PASS)],
)
def test_open_files(hard: int, verdict: Verdict) -> None:
    assert host.judge_descriptors(hard).verdict is verdict


@pytest.mark.parametrize(
    ("source", "verdict"), [("tsc", Verdict.PASS), ("", Verdict.PASS), ("hpet", Verdict.WARN)]
)
def test_clock(source: str, verdict: Verdict) -> None:
    assert host.judge_clock(source).verdict is verdict


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


def test_the_tightest_group_of_version_2_counts(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b", cpu__max="max 100000", memory__max="max", memory__current="1")
    write(tmp_path / "a", cpu__max="150000 100000", memory__max="1000", memory__current="400")
    assert cgroup.cpu_quota(tmp_path, "0::/a/b") == 1.5
    assert cgroup.memory_left(tmp_path, "0::/a/b") == 600
    assert cgroup.cpu_quota(tmp_path, "0::/") is None


def test_groups_of_version_1_are_each_in_a_tree_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "cpu" / "x", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    write(
        tmp_path / "memory",
        **{"memory__limit_in_bytes": str((1 << 63) - 4096), "memory__usage_in_bytes": "1"},
    )
    groups = "4:memory:/\n1:cpu:/x\n0::/"
    assert cgroup.cpu_quota(tmp_path, groups) == 0.5
    assert cgroup.memory_left(tmp_path, groups) is None
    write(tmp_path / "cpu" / "x", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert cgroup.cpu_quota(tmp_path, groups) is None
