from dlcpd.daemon.fair_table import FairTable


def test_the_oldest_member_of_the_largest_owner_makes_room() -> None:
    table: FairTable[str] = FairTable(4)
    assert [table.add("one", "a"), table.add("two", "b")] == [None, None]
    assert [table.add("two", "c"), table.add("two", "d")] == [None, None]
    assert table.add("three", "e") == "b"
    assert table.add("three", "f") == "c"
    assert len(table) == 4


def test_a_small_owner_keeps_its_members_however_many_another_adds() -> None:
    table: FairTable[int] = FairTable(10)
    assert table.add("few", -1) is None
    left = [table.add("many", number) for number in range(1000)]
    assert left == [None] * 9 + list(range(991))


def test_a_discarded_member_takes_no_room() -> None:
    table: FairTable[str] = FairTable(1)
    table.add("one", "a")
    table.discard("a")
    table.discard("a")
    assert table.oldest() is None
    assert table.add("one", "b") is None
    assert table.oldest() == "b"
