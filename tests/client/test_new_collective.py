"""A collective is a builder, a row, a recipe and a method: those of docs/collectives.md, end to
end over two daemons, in a copy of the packages."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.pages import ROOT

PAGE = ROOT / "docs" / "collectives.md"
TIMEOUT = 120.0  # seconds
RANK = """
import sys
import numpy as np
import dlcp_client.numpy

with dlcp_client.numpy.connect() as session:
    mine = np.arange(5, dtype=np.int64) + 10 * session.rank
    session.world.scan(mine).wait()
    large = session.zeros(1 << 20)
    large += session.rank + 1
    session.world.scan(large, "max").wait()
    print(session.rank, mine.tolist(), float(large.min()), float(large.max()), flush=True)
"""


def copied(folder: Path) -> None:
    """The packages, changed as the page says."""
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dlcpd", folder / "dlcpd", ignore=leave)
    shutil.copytree(
        ROOT / "client" / "dlcp_client", folder / "client" / "dlcp_client", ignore=leave
    )
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", PAGE.read_text(), re.DOTALL)
    builder, _, row, recipe, method = blocks
    (folder / "dlcpd/schedules/builders/scan.py").write_text(builder)
    insert(folder / "dlcpd/contract/collectives.py", '    "all_reduce": Collective(', row)
    insert(folder / "dlcpd/schedules/catalog.py", '    "all_reduce": {', recipe)
    insert(
        folder / "dlcpd/schedules/catalog.py",
        "from dlcpd.schedules.builders.ring import ring",
        "from dlcpd.schedules.builders.scan import scan\n",
    )
    insert(folder / "client/dlcp_client/group.py", "    def barrier(self", method + "\n")


def insert(file: Path, before: str, text: str) -> None:
    whole = file.read_text()
    assert whole.count(before) == 1, before
    file.write_text(whole.replace(before, text + before))


def test_the_collective_of_the_page_runs_over_two_daemons(tmp_path: Path) -> None:
    copied(tmp_path)
    (tmp_path / "scan_rank.py").write_text(RANK)
    (tmp_path / "store").mkdir()
    where = {"DLCPD_STORE": str(tmp_path / "store"), "DLCPD_SHARE": "0", "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", str(tmp_path / "dlcpd" / "starter.py"), "scan_rank"],
            env=os.environ | where | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=TIMEOUT) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert [out for out, _ in said] == [
        "0 [0, 1, 2, 3, 4] 1.0 1.0\n",
        "1 [10, 12, 14, 16, 18] 2.0 2.0\n",
    ]
