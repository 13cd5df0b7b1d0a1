"""Counts of a session's datagrams by class and path, from an engine's report. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

FATES: Final = ("sent", "lost", "marked")
NEWS: Final = ("path_down", "path_up", "path_gray")

Seen = dict[str, Any]  # {"classes": {name: {fate: count}}, "paths": [sent], "news": {name: count}}


def seen(engine: dict[str, Any]) -> Seen:
    """Counts of the only session of an engine's report."""
    (session,) = engine["sessions"].values()
    classes: dict[str, Counter[str]] = {}
    paths: Counter[int] = Counter()
    for peer in session["peers"]:
        for number, path in enumerate(peer["paths"]):
            paths[number] += path["sent"]
            for name, space in path["classes"].items():
                classes.setdefault(name, Counter()).update({fate: space[fate] for fate in FATES})
    return {
        "classes": {name: dict(counts) for name, counts in classes.items()},
        "paths": [paths[number] for number in sorted(paths)],
        "news": {name: engine["counters"].get(name, 0) for name in NEWS},
    }


def together(ranks: Iterable[Seen]) -> Seen:
    """Sums of the counts of all ranks."""
    classes: dict[str, Counter[str]] = {}
    paths: Counter[int] = Counter()
    news: Counter[str] = Counter()
    for rank in ranks:
        for name, counts in rank["classes"].items():
            classes.setdefault(name, Counter()).update(counts)
        paths.update(dict(enumerate(rank["paths"])))
        news.update(rank["news"])
    return {
        "classes": {name: dict(counts) for name, counts in classes.items()},
        "paths": [paths[number] for number in sorted(paths)],
        "news": {name: news[name] for name in NEWS},
    }


def class_rows(what: Sequence[object], network: Seen) -> Iterator[list[object]]:
    """A row per traffic class; `what` are its first cells."""
    for name, counts in network["classes"].items():
        yield [*what, name, *(counts[fate] for fate in FATES)]


def shares(network: Seen) -> str:
    """Share of each path in the datagrams sent, and path events, in words."""
    total = max(sum(network["paths"]), 1)
    parts = ", ".join(f"{sent / total:.1%}" for sent in network["paths"])
    news = ", ".join(f"{name} {count}" for name, count in network["news"].items())
    return f"{len(network['paths'])} paths carried {parts}; {news}"
