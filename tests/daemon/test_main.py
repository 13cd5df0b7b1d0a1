"""The command `dlcpd` where something that it needs is missing."""

import subprocess
import sys
from typing import Final

from dlcpd.daemon.main import USAGE

WITHOUT_UVLOOP: Final = """
import sys
sys.modules["uvloop"] = None  # an import of it fails from now on
from dlcpd.daemon.main import main
sys.exit(main([]))
"""


def test_a_missing_event_loop_is_named_with_the_way_to_get_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_UVLOOP],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == USAGE
    [line] = done.stderr.splitlines()
    assert line.startswith(f"dlcpd: the daemon needs uvloop, which {sys.executable} does not have")
    assert line.endswith("pip install uvloop")
