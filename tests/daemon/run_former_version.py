"""`dlcpd` as its former version, or in the mode "older" the one before that, for clients:
run_former_version.py MODE [options of dlcpd]."""

import runpy
import sys
from pathlib import Path

from dlcpd.contract import messages

if __name__ == "__main__":
    spoken = messages.VERSION - (2 if sys.argv[1] == "older" else 1)
    messages.VERSION = spoken  # type: ignore[misc]  # before others import it
    messages.SERVED = (spoken, spoken - 1)  # type: ignore[misc]  # likewise
    runpy.run_path(str(Path(__file__).with_name("run_with_stand_in.py")), run_name="__main__")
