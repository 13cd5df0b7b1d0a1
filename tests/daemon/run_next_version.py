"""`dlcpd` as its next version, which speaks to peers of this one too:
run_next_version.py MODE [options of dlcpd]."""

import runpy
from pathlib import Path

from dlcpd.daemon.peers import peer_messages

if __name__ == "__main__":
    this = peer_messages.PEER_VERSION
    peer_messages.PEER_VERSION = this + 1  # type: ignore[misc]  # before others import it
    peer_messages.OLDEST_PEER = this  # type: ignore[misc]  # likewise
    peer_messages.SPOKEN = (this + 1, this)  # type: ignore[misc]  # likewise
    runpy.run_path(str(Path(__file__).with_name("run_with_stand_in.py")), run_name="__main__")
