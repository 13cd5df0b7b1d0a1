"""dlcpctl in a process where some modules are not installed, or may not be imported."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

ABSENT: Final = ("torch", "dlcp_client", "sklearn")

# `absent` cannot be found, as if it were not installed; `forbidden` is found and must stay unread.
_CODE: Final = """
import importlib.util, sys
absent, forbidden, arguments = {absent!r}, {forbidden!r}, {arguments!r}
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in absent else find(name, *rest)
class Watch:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in forbidden:
            raise AssertionError(name + " was imported")
        if top in absent:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
        return None
sys.meta_path.insert(0, Watch())
from dlcpd.ctl.main import main
sys.exit(main(arguments))
"""


def dlcpctl_without(
    absent: Sequence[str], *arguments: str, forbidden: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    code = _CODE.format(absent=tuple(absent), forbidden=tuple(forbidden), arguments=list(arguments))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
