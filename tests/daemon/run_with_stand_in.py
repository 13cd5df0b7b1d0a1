"""`dlcpd` with the stand-in engine: run_with_stand_in.py MODE [options of dlcpd]."""

import sys
from pathlib import Path

from dlcpd.daemon.main import main

if __name__ == "__main__":
    stand_in = Path(__file__).with_name("stand_in_engine.py")
    command = [sys.executable, str(stand_in), "--mode", sys.argv[1]]
    sys.exit(main(sys.argv[2:], engine_command=command))
