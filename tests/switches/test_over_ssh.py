"""switchcfg as an operator uses it, on a Linux switch behind a real sshd."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.switches.ssh_switch import SshSwitch, ip, until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not shutil.which("sshd"), reason="sshd is not installed"),
]


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[SshSwitch]:
    with SshSwitch(tmp_path).running() as made:
        yield made


def planned(switch: SshSwitch) -> None:
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 2, said


def pending_folder(switch: SshSwitch) -> Path:
    return Path("/run/switchcfg", switch.name)


def test_plan_apply_verify_drift_rollback(switch: SshSwitch) -> None:
    before = switch.queues()
    assert switch.run("doctor", "INTENT") == (0, f"{switch.name}: ready\n")
    planned(switch)
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert (code, said.splitlines()[-2:]) == (
        0,
        [f"{switch.name}: confirmed", "1 done, 0 failed, 0 not started"],
    )
    assert switch.run("verify", "INTENT")[0] == 0
    assert switch.run("drift", "INTENT")[0] == 0
    assert switch.run("plan", "INTENT")[0] == 0
    assert not pending_folder(switch).exists()
    switch.shell("tc qdisc replace dev p1 parent dc:17 bfifo limit 4242")
    code, said = switch.run("drift", "INTENT")
    assert code == 2
    assert "4242" in said
    switch.shell("tc qdisc replace dev p1 parent dc:17 bfifo limit 61440")
    code, said = switch.run("rollback", "INTENT", "--device", switch.name)
    assert code == 0, said
    assert switch.queues() == before
    assert "this host has applied no change" in switch.run("drift", "INTENT")[1]


def test_what_nobody_confirms_reverts_by_itself(switch: SshSwitch) -> None:
    before = switch.queues()
    planned(switch)
    assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
    assert switch.queues() != before
    code, said = switch.run("doctor", "INTENT")
    assert code == 1
    assert "a commit is pending" in said
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 1
    assert "[busy]" in said
    until(lambda: not pending_folder(switch).exists(), meanwhile=switch.later)
    assert switch.queues() == before
    code, said = switch.run("confirm", "INTENT")
    assert code == 1
    assert "[nothing_pending]" in said


def test_what_is_confirmed_stays_and_what_is_aborted_goes(switch: SshSwitch) -> None:
    before = switch.queues()
    planned(switch)
    assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
    assert switch.run("abort", "INTENT")[0] == 0
    assert switch.queues() == before
    assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
    applied = switch.queues()
    timer = int((pending_folder(switch) / "timer").read_text())
    assert switch.run("confirm", "INTENT")[0] == 0
    until(lambda: not Path("/proc", str(timer)).exists())
    assert switch.queues() == applied


@pytest.mark.parametrize("how", ["kill", "link"])
def test_an_apply_that_ends_in_the_middle_leaves_nothing_half_done(
    switch: SshSwitch, how: str
) -> None:
    before = switch.queues()
    planned(switch)
    switch.slow("nft", 2.0)  # queues are made by then, rules are not
    child = switch.start("apply", "INTENT", "PLANS")
    until(lambda: switch.queues() != before)
    if how == "kill":
        child.send_signal(signal.SIGKILL)
    else:
        ip("-n", switch.operator, "link", "set", "mgmt", "down")
    until(lambda: not pending_folder(switch).exists(), seconds=30, meanwhile=switch.later)
    assert switch.queues() == before
    child.kill()
    child.communicate()
    ip("-n", switch.operator, "link", "set", "mgmt", "up")
    for tool in ("nft", "sleep"):
        (switch.folder / "bin" / tool).unlink()
    assert switch.run("apply", "INTENT", "PLANS")[0] == 0  # and it can be done again


def test_a_step_that_the_device_refuses_is_taken_back_at_once(switch: SshSwitch) -> None:
    before = switch.queues()
    planned(switch)
    shim = switch.folder / "bin" / "nft"
    shim.write_text(
        f'#!/bin/sh\n[ "$1" = -f ] || exec {shutil.which("nft")} "$@"\n'
        f"rm {shim}\necho no such thing >&2\nexit 1\n"
    )
    shim.chmod(0o755)
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 1
    assert "no such thing" in said
    assert switch.queues() == before
    assert not pending_folder(switch).exists()


def test_a_device_that_moved_since_the_plan_is_left_alone(switch: SshSwitch) -> None:
    planned(switch)
    switch.shell("sysctl -qw net.ipv4.fib_multipath_hash_policy=2")
    now = switch.queues()
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert (code, switch.queues()) == (1, now)
    assert "plan again [moved]" in said


def test_a_host_key_that_is_not_known_is_refused(switch: SshSwitch) -> None:
    (switch.folder / "known_hosts").write_text("")
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert "[unreachable]" in said
    assert "ost key" in said


def test_a_device_that_does_not_answer_is_one_error(switch: SshSwitch) -> None:
    switch.sshds[0].kill()
    switch.sshds[0].wait()
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert said.count("[unreachable]") == 1
    assert "Traceback" not in said


def test_interrupted_by_hand_it_says_so(switch: SshSwitch) -> None:
    planned(switch)
    switch.slow("nft", 2.0)
    before = switch.queues()
    child = switch.start("apply", "INTENT", "PLANS")
    until(lambda: switch.queues() != before)
    child.send_signal(signal.SIGINT)
    assert child.stderr is not None
    for line in child.stderr:  # the first interrupt lets it finish, the second does not
        if "interrupted: finishing the devices that have begun" in line:
            break
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "interrupted; an unconfirmed change reverts by itself [interrupted]" in err
    assert "Traceback" not in err
    until(lambda: not pending_folder(switch).exists(), seconds=30, meanwhile=switch.later)
    assert switch.queues() == before


def test_nothing_is_left_of_a_switch(tmp_path: Path) -> None:
    made = SshSwitch(tmp_path)
    made.begin()
    made.end()
    listed = subprocess.run(("ip", "netns"), capture_output=True, text=True, check=True).stdout
    assert made.name not in listed
