"""Rank processes of our own, on hosts without daemons: who is blamed, and who stays behind."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import Hosts
from dlcp_lab.ranks.launch import RankFailed, Work
from dlcpd.contract.errors import BadTensor, DaemonUnavailable, DeadlineExceeded, DlcpError
from tests.pages import ROOT


def run(hosts: Hosts, timeout: float = 60.0, **arguments: str) -> list[Any]:
    jobs = {number.strip("_"): job for number, job in arguments.items()}
    work = Work("tests.lab.ranks.rank_jobs", jobs, timeout, {"EXTRA": "yes"})
    return launch.run(hosts, work, progress=lambda _: None)


def children() -> list[str]:
    """This process's, by id."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_every_rank_gets_the_environment_of_torchrun(hosts: Hosts) -> None:
    about = run(hosts, all="about")
    assert [one["RANK"] for one in about] == ["0", "1", "2"]
    assert {one["WORLD_SIZE"] for one in about} == {"3"}
    assert {(one["LOCAL_RANK"], one["MASTER_ADDR"], one["EXTRA"]) for one in about} == {
        ("0", "127.0.0.1", "yes")
    }
    assert about[1]["daemon"].endswith("/b/session")


def test_nobody_leaves_a_barrier_before_all_are_there(hosts: Hosts) -> None:
    seen: list[str] = []
    told: list[str] = []
    left = launch.run(
        hosts,
        Work("tests.lab.ranks.rank_jobs", {"all": "barriers"}, 60.0),
        progress=told.append,
        at_barrier=lambda where, ranks: seen.append(f"{where} {len(ranks)}"),
    )
    assert seen == ["here 3"] * 3
    assert told == ["rank 0"] * 3
    for earlier, later in ((0, 1), (1, 2)):
        assert max(times[earlier] for times in left) <= min(times[later] for times in left)


def test_an_error_keeps_its_class_and_names_its_rank(hosts: Hosts) -> None:
    with pytest.raises(BadTensor, match="rank 1 on b: the tensor is wrong"):
        run(hosts, all="wait", _1="refuse")


def test_the_cause_is_blamed_not_its_consequence(hosts: Hosts) -> None:
    with pytest.raises(BadTensor, match="rank 2 on c"):
        run(hosts, all="lose", _2="refuse")


def test_a_bug_is_told_with_its_class(hosts: Hosts) -> None:
    with pytest.raises(DlcpError, match="rank 0 on a: RuntimeError: a bug"):
        run(hosts, all="wait", _0="break")


def test_a_killed_rank_is_named_with_its_signal(hosts: Hosts) -> None:
    with pytest.raises(RankFailed, match=r"rank 1 on b.*killed by SIGKILL"):
        run(hosts, all="wait", _1="die")


def test_a_hanging_rank_ends_with_the_deadline(hosts: Hosts) -> None:
    with pytest.raises(DeadlineExceeded, match=r"rank\(s\) 2 did not end"):
        run(hosts, 2.0, all="about", _2="hang")


def test_a_dead_daemon_is_blamed_before_the_ranks(hosts: Hosts) -> None:
    hosts.members[1].daemon.process.status = -9  # type: ignore[attr-defined]
    with pytest.raises(DaemonUnavailable, match=r"b: dlcpd .*SIGKILL.*last words"):
        run(hosts, all="lose")


@pytest.mark.parametrize("end", ["about", "break", "die"])
def test_no_process_stays_behind(hosts: Hosts, end: str) -> None:
    before = children()
    with contextlib.suppress(DlcpError):
        run(hosts, all="wait" if end != "about" else "about", _0=end)
    assert children() == before


ORPHAN = """
import os, pathlib, sys
from dlcp_lab.ranks import processes
child = processes.start("tests.lab.ranks.sleeper", name="x", log=pathlib.Path(sys.argv[1]),
                        environ=os.environ)
print(child.process.pid, flush=True)
sys.stdin.read()
"""


def test_children_end_when_this_process_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with parent:
        assert parent.stdout
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        while not (tmp_path / "log").read_text():  # it says that it will end with its parent
            pass
        parent.send_signal(signal.SIGKILL)
    assert select.select([pidfd], [], [], 30.0)[0]
    os.close(pidfd)
