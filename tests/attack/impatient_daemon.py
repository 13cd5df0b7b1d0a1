"""As tests/daemon/run_with_stand_in.py, with rests and delays that take almost no time: for tests
with a thousand failures."""

import runpy
from pathlib import Path

from dlcpd.daemon import http
from dlcpd.daemon.peers import line
from dlcpd.ipc import accepting

SHORTER = {
    accepting: {"REST": 0.005},
    http: {"REST": 0.005},
    line: {"RECONNECT": 0.002, "RECONNECT_MAX": 0.002},
}
RUNNER = Path(__file__).parents[1] / "daemon" / "run_with_stand_in.py"

if __name__ == "__main__":
    for module, values in SHORTER.items():
        for name, value in values.items():
            assert hasattr(module, name)
            setattr(module, name, value)
    runpy.run_path(str(RUNNER), run_name="__main__")
