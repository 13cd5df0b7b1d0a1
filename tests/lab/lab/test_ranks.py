"""Waiting for the ranks of a job."""

import subprocess
import time

from dlcp_lab.lab.ranks import TIMED_OUT, _first_status


class EndsMeanwhile(subprocess.Popen[bytes]):
    """It runs when it is asked for the first time, and has ended before the second."""

    asked = False

    def poll(self) -> int | None:
        if not self.asked:
            self.asked = True
            return None
        return self.wait()


def soon() -> float:
    return time.monotonic() + 60


def test_a_rank_that_ends_while_it_is_looked_at_has_its_status() -> None:
    for word, status in (("true", 0), ("false", 1)):
        with EndsMeanwhile((word,)) as child:
            assert _first_status([child], soon()) == status


def test_the_first_failure_ends_the_wait() -> None:
    with subprocess.Popen(("sleep", "60")) as waits, subprocess.Popen(("false",)) as fails:
        assert _first_status([waits, fails], soon()) == 1
        assert _first_status([waits], time.monotonic()) == TIMED_OUT
        waits.kill()
