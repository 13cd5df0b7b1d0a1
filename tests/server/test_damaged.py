"""Damaged files of `dlcpd server` give one clear error, or a configuration."""

from pathlib import Path

import pytest
from hypothesis import given, settings

from dlcp_client.server.config import MOST_BYTES, load, parse
from dlcpd.contract.errors import BadConfig
from tests.damaged import check_error, damaged

LONGEST = 700  # characters of an error
EVERYTHING = """
[server]
name = "embeddings"
shards = 4
store = "/shared/store"
snapshots = "snapshots"
serve = [0, 3]
snapshot_every = 100
fsync = false
socket = "/run/dlcpd/dlcpd.sock"
"""


@settings(max_examples=200, deadline=None)
@given(damaged([EVERYTHING], ["4", "[3]", "[4]", "[0, 0]", '"x"', "1.0"]))
def test_a_damaged_file_is_one_error_or_a_configuration(text: str) -> None:
    try:
        config = parse(text, "x.toml", Path("/folder"))
    except BadConfig as exc:
        check_error(str(exc), "x.toml", LONGEST)
    else:
        assert config.own and Path(config.snapshots).is_absolute()


def test_a_file_of_another_kind_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "image"
    with file.open("wb") as made:
        made.truncate(1 << 40)  # a file with a hole, larger than memory
    with pytest.raises(BadConfig, match=f"is longer than {MOST_BYTES >> 20} MiB"):
        load(file)
