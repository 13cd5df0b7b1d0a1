"""A fabric without root: in a user namespace of this user, where the host allows one."""

import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

# As this user, with all capabilities in the new namespaces. ip-netns(8) writes to /run.
UNSHARE: Final = ("unshare", "--map-current-user", "--keep-caps", "--net", "--mount")
ROOM: Final = ("sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh")
PATIENCE: Final = 10.0  # seconds


def inside(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in namespaces of its own; [] where the host allows
    none, or has no unshare(1) that can."""
    if not shutil.which("unshare"):
        return []
    made = [*UNSHARE, *ROOM]
    try:
        tried = subprocess.run([*made, "true"], capture_output=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return []
    return [*made, *command] if tried.returncode == 0 else []
