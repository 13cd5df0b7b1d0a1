"""The row of the topology file."""

from dataclasses import replace
from pathlib import Path

import pytest

from dlcpd.daemon.config.tables import Config, PlannerTable
from dlcpd.doctor.rows import Verdict
from dlcpd.doctor.topology import judge_topology

HOSTS = '[hosts]\na = "10gbit"\nb = { send = "2gbit", receive = "4gbit" }\n'
RACKS = '[racks.left]\nhosts = ["a", "b"]\nuplink = "5gbit"\n'


def config(file: Path | str, host: str = "b") -> Config:
    made = Config()
    daemon = replace(made.daemon, host=host)
    return replace(made, daemon=daemon, planner=PlannerTable(str(file)))


def test_without_a_file_there_is_no_row() -> None:
    assert judge_topology(config("")) == []


@pytest.mark.parametrize(
    ("text", "host", "verdict", "said"),
    [
        (HOSTS, "b", Verdict.PASS, "b sends 2gbit and receives 4gbit; no racks"),
        (
            HOSTS + RACKS,
            "a",
            Verdict.PASS,
            "rack left, whose uplink sends 5gbit and",
        ),
        (HOSTS, "c", Verdict.WARN, "host 'c' is not in it; add it with its rate"),
        ("[hosts]\na = 1\n", "a", Verdict.FAIL, "topology.toml: hosts.a: 1 is not a rate"),
    ],
)
def test_a_row_says_what_peers_are_told(
    tmp_path: Path, text: str, host: str, verdict: Verdict, said: str
) -> None:
    file = tmp_path / "topology.toml"
    file.write_text(text)
    [row] = judge_topology(config(file, host))
    assert (row.verdict, said in row.found) == (verdict, True), row
