"""`make system-deps` on a machine whose apt-get is scripted: patient, and honest at the end."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parents[2] / ".ci" / "system-deps"
NEEDED: Final = (
    "bash",
    "cat",
    "chmod",
    "cut",
    "dirname",
    "sleep",
    "sort",
    "uname",
)  # by the scripts
# It logs how it was called, fails to update as often as it is told, and knows all packages but one.
APT: Final = """#!/bin/bash
here="$(dirname "$0")"
echo "$*" >>"$here/../log"
case " $* " in
    *" update "*)
        failures="$(cat "$here/../failures")"
        echo $((failures - 1)) >"$here/../failures"
        ((failures <= 0)); exit ;;
esac
for word in "$@"; do
    case "$word" in
        iproute2) tools="ip tc" ;;
        nftables) tools="nft" ;;
        openssh-server) tools="sshd" ;;
        redis-tools) tools="redis-check-rdb" ;;
        ethtool | chromium | clang | gcc | netconfd | podman) tools="$word" ;;
        prometheus) tools="promtool" ;;
        chromium-driver) tools="chromedriver" ;;
        systemd-container) tools="systemd-nspawn" ;;
        libyang2-tools) exit 100 ;;
        *) tools="" ;;
    esac
    for tool in $tools; do echo '#!/bin/sh' >"$here/$tool"; chmod +x "$here/$tool"; done
done
"""


class Machine:
    """A PATH of its own, and the script run with it."""

    def __init__(self, folder: Path, user: int) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        for tool in NEEDED:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        self.program("id", f"#!/bin/sh\necho {user}\n")
        self.program("apt-get", APT)
        self.update_fails(0)

    def program(self, name: str, text: str) -> None:
        file = self.bin / name
        file.write_text(text)
        file.chmod(0o755)

    def update_fails(self, times: int) -> None:
        (self.folder / "failures").write_text(str(times))

    def run(self) -> list[str]:
        """What the script says; it never fails."""
        done = subprocess.run(
            ["/bin/bash", str(SCRIPT)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={"PATH": str(self.bin), "SYSTEM_DEPS_PAUSE": "0"},
        )
        return done.stdout.splitlines()

    def calls(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, user=0)


def test_apt_waits_for_its_lock_and_a_failed_update_is_repeated(machine: Machine) -> None:
    machine.update_fails(2)
    said = machine.run()
    calls = machine.calls()
    assert [call.split()[-1] for call in calls[:3]] == ["update"] * 3
    assert all("-o DPkg::Lock::Timeout=600" in call for call in calls)
    assert "system-deps: apt-get update failed (2 of 5)" in said
    assert "system-deps: apt-get update failed (3 of 5)" not in said


def test_an_update_that_never_works_does_not_keep_the_packages_out(machine: Machine) -> None:
    machine.update_fails(99)
    said = machine.run()
    assert sum("update" in call for call in machine.calls()) == 5
    assert "system-deps: going on with the package lists that there are" in said
    assert (machine.bin / "ethtool").exists()


def test_one_package_that_is_unknown_does_not_keep_the_others_out(machine: Machine) -> None:
    said = machine.run()
    assert "system-deps: apt-get could not install libyang2-tools" in said
    missing = [line for line in said if "MISSING" in line and "/usr/" not in line]
    assert missing == [
        "system-deps: MISSING yanglint (package libyang2-tools). "
        "Skipped without it: tests of SONiC's YANG models"
    ]


def test_where_all_is_there_nothing_is_installed(machine: Machine) -> None:
    for tool in (
        "ip",
        "tc",
        "nft",
        "ethtool",
        "gcc",
        "clang",
        "systemd-nspawn",
        "podman",
        "sshd",
        "redis-check-rdb",
        "netconfd",
        "chromium",
        "chromedriver",
        "promtool",
    ):
        machine.program(tool, "#!/bin/sh\n")
    machine.program("yanglint", "#!/bin/sh\n")
    if not os.path.exists("/usr/include/bpf/bpf_helpers.h"):
        pytest.skip("libbpf-dev is not installed here")
    assert machine.run() == ["system-deps: all tools are there"]
    assert machine.calls() == []


def test_who_is_not_root_is_told_what_to_install_and_what_is_skipped(tmp_path: Path) -> None:
    machine = Machine(tmp_path, user=1000)
    first, *_, last = machine.run()
    assert first.startswith(
        "system-deps: not root: as root, install chromium chromium-driver clang"
    )
    assert last.startswith("system-deps: NOT ROOT. Skipped")
    assert machine.calls() == []


def test_without_apt_the_packages_are_named(machine: Machine) -> None:
    (machine.bin / "apt-get").unlink()
    assert machine.run()[0].startswith("system-deps: no apt-get: install by other means")
