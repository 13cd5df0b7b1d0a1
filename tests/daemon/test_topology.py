"""The topology file of a daemon."""

from pathlib import Path

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.topology import MOST_BYTES, absent, host_capacity
from dlcpd.schedules.network import HostCapacity

G = 10**9


def test_without_a_file_a_host_tells_nothing() -> None:
    assert host_capacity("", "a") is None


def test_a_host_is_found_in_it(tmp_path: Path) -> None:
    file = tmp_path / "topology.toml"
    file.write_text('[hosts]\na = "10gbit"\n')
    assert host_capacity(str(file), "a") == HostCapacity((10 * G,), (10 * G,))
    assert host_capacity(str(file), "b") is None
    assert absent(str(file), "b").endswith("host 'b' is not in it; add it with its rate")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read"),
        (b"\xff", "is not UTF-8 text"),
        (b"[hosts]\na = 0\n", "topology.toml: hosts.a: "),
        (b'hosts = ["a"]\nlinks = []\n', "needs one link in both directions"),
        (b"#" * (MOST_BYTES + 1), "is longer than 16 MiB"),
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "topology.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadConfig, match=why) as caught:
        host_capacity(str(file), "a")
    assert str(caught.value).startswith(f"[planner] topology: {file}")
