"""The cost of protection, measured once: every way carries the same bytes."""

from dlcp_lab.bench.protection import SEGMENTS, main
from dlcpd.io.datapath.library import installed


def test_a_row_for_each_way_and_size() -> None:
    said: list[str] = []
    assert main(["--rounds", "1"], said.append) == 0
    [text] = said
    lines = text.splitlines()[1:]
    assert len(lines) == len(SEGMENTS) * (5 if installed() else 3)
    encrypted = [line.split() for line in lines if line.startswith("numpy, aes-256-gcm")]
    assert [int(line[2]) for line in encrypted] == list(SEGMENTS)
    for line in encrypted:
        assert float(line[3]) > 0
