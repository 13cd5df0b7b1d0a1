from dlcpd.daemon.crowd import Crowd


def test_the_oldest_of_whoever_has_most_makes_room() -> None:
    crowd: Crowd[str] = Crowd(4)
    assert [crowd.add("one", "a"), crowd.add("two", "b")] == [None, None]
    assert [crowd.add("two", "c"), crowd.add("two", "d")] == [None, None]
    assert crowd.add("three", "e") == "b"
    assert crowd.add("three", "f") == "c"
    assert len(crowd) == 4


def test_who_has_few_stays_however_many_come_of_another() -> None:
    crowd: Crowd[int] = Crowd(10)
    assert crowd.add("few", -1) is None
    left = [crowd.add("many", number) for number in range(1000)]
    assert left == [None] * 9 + list(range(991))


def test_who_left_by_itself_is_in_nobodys_way() -> None:
    crowd: Crowd[str] = Crowd(1)
    crowd.add("one", "a")
    crowd.discard("a")
    crowd.discard("a")
    assert crowd.oldest() is None
    assert crowd.add("one", "b") is None
    assert crowd.oldest() == "b"
