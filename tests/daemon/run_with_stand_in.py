"""`dlcpd` with the stand-in engine: run_with_stand_in.py MODE [options of dlcpd].

HAND_OVER=N: as a service manager that hands descriptor N over.
"""

import os
import sys
from pathlib import Path

from dlcpd.daemon.main import main

if __name__ == "__main__":
    if handed := os.environ.pop("HAND_OVER", ""):
        os.dup2(int(handed), 3)
        os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
    stand_in = Path(__file__).with_name("stand_in_engine.py")
    command = [sys.executable, str(stand_in), "--mode", sys.argv[1]]
    sys.exit(main(sys.argv[2:], engine_command=command))
