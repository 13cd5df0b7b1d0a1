"""A representative part of the matrix of faults, and the table in docs/reliability.md.

All of it: `make faults`. Each fault is here once, in turns of phases and modes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dlcp_lab.faults.expected import Key, cells
from dlcp_lab.faults.kinds import PAUSES, Fault, Mode, Phase
from dlcp_lab.faults.matrix import (
    BEGIN,
    END,
    HEADER,
    TIME,
    Clusters,
    measured,
    possible,
    problems,
    render,
    run,
)

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "reliability.md"
PEER_TIMEOUT: Final = 4.0  # seconds; a loaded machine stops processes for longer than 1
SOME: Final[list[Key]] = [
    (Fault.KILL_TRAINER, Phase.GATHERING, Mode.BOUNDED),
    (Fault.KILL_TRAINER, Phase.REDUCING, Mode.EMBEDDED),
    (Fault.KILL_DAEMON, Phase.REDUCING, Mode.EXACT),
    (Fault.KILL_ENGINE, Phase.BEFORE_READY, Mode.EXACT),
    (Fault.RESTART, Phase.AGREEING, Mode.BOUNDED),
    (Fault.PAUSE_TRAINER, Phase.BEFORE_READY, Mode.EXACT),
    (Fault.PAUSE_DAEMON, Phase.GATHERING, Mode.EXACT),
    (Fault.PAUSE_ENGINE, Phase.GATHERING, Mode.EMBEDDED),
    (Fault.PAUSE_HOST, Phase.REDUCING, Mode.EXACT),
    (Fault.PAUSE_TRAINER_2, Phase.REDUCING, Mode.EXACT),
    (Fault.PAUSE_DAEMON_2, Phase.REDUCING, Mode.BOUNDED),
    (Fault.PAUSE_ENGINE_2, Phase.REDUCING, Mode.EMBEDDED),
    (Fault.PAUSE_HOST_10, Phase.REDUCING, Mode.EXACT),
    (Fault.CUT_PATH, Phase.REDUCING, Mode.BOUNDED),
    (Fault.CUT_HOST, Phase.AGREEING, Mode.BOUNDED),
    (Fault.PARTITION, Phase.GATHERING, Mode.EXACT),
    (Fault.ONE_WAY, Phase.BEFORE_READY, Mode.BOUNDED),
    (Fault.CORRUPT, Phase.REDUCING, Mode.EXACT),
    (Fault.DUPLICATE, Phase.REDUCING, Mode.BOUNDED),
    (Fault.REORDER, Phase.GATHERING, Mode.EXACT),
    (Fault.CLOCK_JUMP, Phase.REDUCING, Mode.EXACT),
    (Fault.SHM_FULL, Phase.JOINING, Mode.EXACT),
    (Fault.FD_LIMIT, Phase.JOINING, Mode.EXACT),
    (Fault.DISK_FULL, Phase.REDUCING, Mode.EXACT),
]


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    with Clusters(PEER_TIMEOUT) as made:
        yield made


@pytest.mark.parametrize("key", SOME, ids="-".join)
def test_a_fault_ends_as_the_table_says(key: Key, clusters: Clusters) -> None:
    if not possible(key):
        pytest.skip("libfaketime is not installed")
    assert not list(problems(run(clusters, key), cells()[key]))


def test_every_fault_and_every_phase_is_in_the_part_and_in_the_whole() -> None:
    assert set(SOME) <= set(cells())
    assert {fault for fault, _, _ in cells()} == set(Fault)
    assert set(Fault) - set(PAUSES) <= {fault for fault, _, _ in SOME}
    for chosen in (SOME, list(cells())):
        assert {phase for _, phase, _ in chosen} == set(Phase)
        assert {mode for _, _, mode in chosen} == set(Mode)


def test_the_document_says_what_every_run_asserts() -> None:
    table = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    assert TIME.sub("", table) == render({}, cells())
    assert len(table.splitlines()) > 2
    assert table.startswith(f"| {HEADER[0]} |")
    assert render(measured(f"\n{table}"), cells()) == table
    named = [row for row in table.splitlines() if "peer_lost" in row]
    assert all(TIME.search(row) for row in named), "every error has the time until it is known"
