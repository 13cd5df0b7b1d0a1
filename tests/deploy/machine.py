"""A machine that systemd boots: `systemd-nspawn -b` over this one's file system.

It shares the kernel and nothing else: what it writes is in memory, its network is a loopback of
its own, and it sees no process but its own. All of it - mounts, files, processes - is gone with
the one process that is started here, and that with the one that starts it, whatever its end.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

PATIENCE: Final = 60.0  # seconds until a test fails; never a measure of anything
TOOLS: Final = ("systemd-nspawn", "nsenter", "setpriv", "unshare", "systemd-analyze", "dpkg-deb")
# nspawn leaves its machine running when it is killed. So it is the first process of a namespace of
# processes, which end with it; its folders in /run, and / as a lower layer, are in one of mounts.
OUTSIDE: Final = (
    "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid",
    "--fork", "--kill-child", "--mount-proc",
)  # fmt: skip
# Of the units of this machine only the basic ones start.
BOOT: Final = """
mount -t tmpfs tmpfs /run && mkdir /run/root && mount --bind / /run/root &&
exec systemd-nspawn --quiet --boot --directory=/run/root --volatile=overlay --register=no \
    --keep-unit --console=pipe --private-network --link-journal=no --machine=dlcpd-test "$@" \
    -- --unit=basic.target
"""


def unavailable() -> str:
    """Why there can be no such machine here; "" if there can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    may = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if may.returncode == 0 else "this root may not mount, as in a container"


class Machine:
    """Runs from `boot` to `off`. `shown`: folders of this machine by their names there."""

    def __init__(self, shown: Mapping[Path, str]) -> None:
        binds = [f"--bind-ro={folder}:{name}" for folder, name in shown.items()]
        self._unshare = subprocess.Popen(
            [*OUTSIDE, "sh", "-c", BOOT, "sh", *binds],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def booted(self) -> Self:
        """Wait until its units have started."""
        self.until(
            "[ -S /run/systemd/private ] && systemctl is-system-running --wait | grep -E "
            "'running|degraded'",
            "the machine boots",
        )
        return self

    def off(self) -> None:
        """End it: all processes of nspawn's namespace end with nspawn, and `unshare` after it."""
        for nspawn in _children(self._unshare.pid):
            os.kill(nspawn, signal.SIGKILL)
        self._unshare.communicate(timeout=PATIENCE)

    def command(self, *words: str, user: str = "root") -> list[str]:
        """The command line that runs `words` there."""
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        return [
            "nsenter",
            "--target",
            str(self.first),
            "--all",
            *as_user,
            "env",
            "-i",
            path,
            "LC_ALL=C.UTF-8",
            *words,
        ]

    def tried(self, script: str) -> "subprocess.CompletedProcess[str]":
        """A shell script, run as root."""
        return subprocess.run(
            self.command("sh", "-c", script),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def run(self, script: str) -> str:
        """What a shell script says, which must succeed."""
        done = self.tried(script)
        assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}"
        return done.stdout.strip()

    def until(self, script: str, what: str) -> str:
        """Run a script again and again until it succeeds; what it says then."""
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self._unshare.poll() is None, f"it is off: {self._unshare.communicate()[0]}"
            done = self.tried(script) if self.first else None
            if done and done.returncode == 0:
                return done.stdout.strip()
            assert time.monotonic() < deadline, f"{what}: {done and done.stdout}"
            time.sleep(0.1)

    @property
    def first(self) -> int:
        """Process id of its first process, as seen from here; 0: it is not there yet."""
        for nspawn in _children(self._unshare.pid):
            for child in _children(nspawn):
                if _namespace(child) != _namespace(nspawn):
                    return child
        return 0


def _children(process: int) -> list[int]:
    return [
        int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def _namespace(process: int) -> str:
    return os.readlink(f"/proc/{process}/ns/pid")
