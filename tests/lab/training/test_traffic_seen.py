"""What the network did, out of engines' reports: summed by class and path."""

from typing import Any

from dlcp_lab.training.traffic_seen import class_rows, seen, shares, together


def path(**classes: tuple[int, int, int]) -> dict[str, Any]:
    return {
        "sent": sum(counts[0] for counts in classes.values()),
        "classes": {
            name: {"sent": sent, "lost": lost, "marked": marked, "rtt": 0.1}
            for name, (sent, lost, marked) in classes.items()
        },
    }


def engine(*peers: list[dict[str, Any]], **counters: int) -> dict[str, Any]:
    return {
        "counters": counters,
        "sessions": {"7": {"peers": [{"paths": paths} for paths in peers]}},
    }


def test_classes_and_paths_are_summed_over_peers_and_ranks() -> None:
    one = seen(engine([path(front=(10, 1, 2)), path(back=(30, 0, 0))], path_down=1))
    other = seen(engine([path(front=(5, 0, 1)), path()], [path(), path(back=(5, 0, 5))], ce=9))
    both = together([one, other])
    assert both == {
        "classes": {
            "front": {"sent": 15, "lost": 1, "marked": 3},
            "back": {"sent": 35, "lost": 0, "marked": 5},
        },
        "paths": [15, 35],
        "news": {"path_down": 1, "path_up": 0, "path_gray": 0},
    }
    assert list(class_rows(["task"], both)) == [
        ["task", "front", 15, 1, 3],
        ["task", "back", 35, 0, 5],
    ]
    assert shares(both) == "2 paths carried 30.0%, 70.0%; path_down 1, path_up 0, path_gray 0"


def test_nothing_sent_is_no_division_by_zero() -> None:
    assert shares(seen(engine([path()]))).startswith("1 paths carried 0.0%")
