"""`dlcpd` with the stand-in engine, on a host of its own that has loopback alone:
run_in_own_network.py MODE [options of dlcpd]."""

import ctypes
import os
import runpy
import subprocess
import sys
from pathlib import Path

CLONE_NEWNET = 0x40000000  # sched.h

if __name__ == "__main__":
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    runpy.run_path(str(Path(__file__).with_name("run_with_stand_in.py")), run_name="__main__")
