"""Images of containers, built and run by podman without any registry.

The base image, which Containerfile takes from a registry, is made of Debian packages that are
installed here: their files and no other, so that what the image needs and does not bring is missed.
All that podman keeps is in one folder, and gone at the end.
"""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dlcpd import __version__
from tests.wheel import BUILD

BASE: Final = "localhost/base:1"
IMAGE: Final = "localhost/dlcpd:test"
# crun refuses a machine with both versions of control groups; with the second hidden there is one.
HIDDEN: Final = """
mountpoint -q /sys/fs/cgroup/unified && umount /sys/fs/cgroup/unified
exec "$@"
"""
# No control groups, since many sandboxes have none to give; no more of what is limited than this
# process has; and no timers of systemd for health checks.
RUN: Final = (
    "run", "--pull=never", "--cgroups=disabled", "--no-healthcheck",
    "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
)  # fmt: skip
# What an image like python:3-slim has beside Debian's essential packages, with Python's headers;
# and gcc, whose installation in the build is then none.
PACKAGES: Final = (
    "apt", "ca-certificates", "gcc", "libc6-dev", "libpython3-dev", "passwd", "python3-pip",
    "python3-venv",
)  # fmt: skip
# What those packages make when they are installed, and how an index is reached from here.
MADE: Final = (
    "/etc/alternatives", "/etc/apt", "/etc/pip.conf", "/etc/ssl/certs", "/etc/xdg/pip",
    "/var/lib/dpkg/status",
)  # fmt: skip
UNREAD: Final = ("/usr/share/doc/", "/usr/share/locale/", "/usr/share/man/")
FOLDERS: Final = (
    "dev", "proc", "root", "run", "sys", "tmp", "var/cache/apt/archives/partial",
    "var/lib/apt/lists/partial", "var/log/apt", "var/tmp",
)  # fmt: skip


def unavailable() -> str:
    """Why no image can be built and run here; "" if one can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("podman", "dpkg", "apt-cache") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    may = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if may.returncode == 0 else "this root may not mount, as in a container"


class Podman:
    """With storage of its own. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._podman = (
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            HIDDEN,
            "sh",
            "podman",
            "--root",
            str(folder / "storage"),
            "--runroot",
            str(folder / "run"),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _exc: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.tried("rm", "--all", "--force", "--time", "0")
        self.tried("rmi", "--all", "--force")

    def command(self, *words: str) -> list[str]:
        """The command line of a command of podman."""
        return [*self._podman, *words]

    def tried(self, *words: str, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """What a command says, on stdout and stderr."""
        return subprocess.run(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=timeout,
        )

    def run(self, *words: str, timeout: float = 120) -> str:
        """What a command says that must succeed."""
        done = self.tried(*words, timeout=timeout)
        assert done.returncode == 0, f"podman {' '.join(words)}: {done.returncode}\n{done.stdout}"
        return done.stdout.strip()


def build(podman: Podman, top: Path) -> str:
    """Have IMAGE of a checkout, by its Containerfile; what podman says of it.

    Without a runtime for the build's own steps, and without a layer for each: both cost time only.
    """
    return podman.run(
        "build",
        "--isolation=chroot",
        "--layers=false",
        "--format=docker",
        "--network=host",
        "--pull=never",
        f"--file={top}/deploy/oci/Containerfile",
        f"--build-arg=BASE={BASE}",
        f"--build-arg=VERSION={__version__}+image",
        "--build-arg=REVISION=1a2b3c4",
        f"--tag={IMAGE}",
        str(top),
        timeout=BUILD,
    )


def make_base(podman: Podman, folder: Path) -> None:
    """Have BASE."""
    archive = folder / "base.tar"
    with tarfile.open(archive, "w") as tar:
        names = set[str]()
        for name in FOLDERS:
            made = tarfile.TarInfo(name)
            made.type, made.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(made)
        for name in ("passwd", "group"):  # of this machine's users, none
            tar.add(f"/usr/share/base-passwd/{name}.master", f"etc/{name}")
        for file in _files():
            name = os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file))
            if name not in names:
                names.add(name)
                tar.add(name, recursive=False)
        for name in filter(os.path.exists, MADE):
            tar.add(name, filter=lambda each: None if f"/{each.name}" in names else each)
    podman.run("import", "--quiet", str(archive), BASE)
    archive.unlink()


def _files() -> Iterator[str]:
    """Of the packages and all that they need."""
    installed = [
        line.split()
        for line in _lines("dpkg-query", "--show", "--showformat", "${Package} ${Essential}\n")
    ]
    essential = [name for name, *is_it in installed if is_it == ["yes"]]
    needed = _lines(
        "apt-cache",
        "depends",
        "--recurse",
        "--installed",
        "--no-recommends",
        "--no-suggests",
        "--no-conflicts",
        "--no-breaks",
        "--no-replaces",
        "--no-enhances",
        *PACKAGES,
        *essential,
    )
    known = {name for name, *_ in installed}.intersection(needed)
    for file in _lines("dpkg-query", "--listfiles", *sorted(known)):
        if file.startswith(UNREAD):
            continue
        if file.startswith("/") and (os.path.islink(file) or os.path.isfile(file)):
            yield file


def _lines(*command: str) -> Sequence[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()
