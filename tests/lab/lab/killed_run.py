"""Run in a mount namespace of its own: a bench is killed, then `lab down --all` cleans up after it.

Prints as JSON what there was, what the command said and what is left. Nothing outside is seen or
touched: the names of network namespaces are this program's own, its temporary folders in TMPDIR.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

NAMES: Final = Path("/run/netns")
LABS: Final = Path("/run/dlcpd-lab")
PATIENCE: Final = 100.0  # seconds until a bench has its fabric and its ranks


def dlcpctl(*words: str) -> list[str]:
    return [sys.executable, "-m", "dlcpd.ctl.main", *words]


def processes_in(inodes: set[int]) -> list[int]:
    """Those whose network namespace is one of these."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns" / "net").stat().st_ino in inodes:
                found.append(int(entry.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def begin_and_kill() -> set[int]:
    """A bench on two hosts and a switch; the network namespaces that it leaves, by inode."""
    words = ("bench", "all-reduce", "--switch", "100mbit", "--sizes", "64M", "--repeat", "1000")
    bench = subprocess.Popen(dlcpctl(*words), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and bench.poll() is None:
        inodes = {name.stat().st_ino for name in NAMES.iterdir()}
        if len(inodes) == 3 and len(processes_in(inodes)) >= 6:  # per host two of dlcpd and a rank
            break
        time.sleep(0.1)
    bench.send_signal(signal.SIGKILL)
    bench.wait()
    return inodes


def main() -> None:
    scratch = os.environ["TMPDIR"]
    for folder in (NAMES, LABS):
        folder.mkdir(exist_ok=True)
        subprocess.run(("mount", "-t", "tmpfs", "none", str(folder)), check=True)
    inodes = begin_and_kill()
    before = {"names": sorted(os.listdir(NAMES)), "folders": os.listdir(scratch)}
    down = subprocess.run(
        dlcpctl("lab", "down", "--all"), capture_output=True, text=True, check=True
    )
    after: dict[str, Any] = {"names": os.listdir(NAMES), "folders": os.listdir(scratch)}
    deadline = time.monotonic() + PATIENCE
    while (running := processes_in(inodes)) and time.monotonic() < deadline:
        time.sleep(0.1)  # killed, and not yet gone
    after["running"] = running
    json.dump({"before": before, "said": down.stdout, "after": after}, sys.stdout)


if __name__ == "__main__":
    main()
