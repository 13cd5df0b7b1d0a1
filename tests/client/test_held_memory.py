from typing import Any

from msgspec.structs import replace

from dlcp_client.operations.held_memory import HeldMemory
from dlcp_client.operations.ledger import Ledgers
from tests.client.stand_in import completed


class Ended:
    """The part of a work that the memory of an operation needs."""

    def __init__(self, *, ended: bool) -> None:
        self.ended, self.released, self.copied = ended, False, True


def test_memory_is_held_until_its_release_which_the_work_learns() -> None:
    memory, work = HeldMemory(), Ended(ended=False)
    stand_in: Any = work
    memory.hold(1, stand_in, ("array",))
    assert 1 in memory and len(memory) == 1
    assert memory.within({1}) and not memory.within({2})
    memory.release(1)
    memory.release(1)
    assert work.released and len(memory) == 0 and memory.releases == 1


def test_memory_of_an_operation_that_was_not_sent_is_no_release() -> None:
    memory, work = HeldMemory(), Ended(ended=False)
    stand_in: Any = work
    memory.hold(1, stand_in, ())
    memory.forget(1)
    assert 1 not in memory and memory.releases == 0 and not work.released


def test_works_that_ended_are_found_while_a_caller_holds_them() -> None:
    memory = HeldMemory()
    works: list[Any] = [Ended(ended=False), Ended(ended=True)]
    for number, work in enumerate(works):
        memory.hold(number, work, ())
    del work
    assert memory.ended() == [works[1]]
    memory.clear()
    assert len(memory) == 0
    works.clear()
    assert memory.ended() == []


def test_totals_are_of_all_operations_and_of_bounded_ones_by_name() -> None:
    totals = Ledgers()
    totals.add("", completed(1, sent=2))
    totals.add("layer", replace(completed(2), waived=3))
    assert (totals.whole.operations, totals.whole.sent, totals.whole.waived) == (2, 2, 3)
    assert list(totals.bounded(["layer", "", "other"])) == ["layer"]
