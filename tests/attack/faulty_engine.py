"""The engine, with a bug in one of its functions: `--break MODULE:CLASS.METHOD --session N`.

The method raises whenever it works for that session, and does its work for every other.
"""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from dlcpd.io import engine

WAYS = ("session", "_session", "owner")  # from an object to the session that it belongs to


def session_of(subject: Any, depth: int = 2) -> int | None:
    """The number of the session that an object belongs to."""
    number = getattr(subject, "number", subject)
    if isinstance(number, int):
        return number
    owners = [getattr(subject, way, None) for way in WAYS] if depth else []
    found = (session_of(owner, depth - 1) for owner in owners if owner is not None)
    return next((number for number in found if number is not None), None)


def broken(method: Callable[..., Any], number: int) -> Callable[..., Any]:
    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        if number in map(session_of, (self, *arguments)):
            raise ValueError("a bug made on purpose")
        return method(self, *arguments, **named)

    return wrapped


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--break", dest="place", required=True)
    parser.add_argument("--session", type=int, required=True)
    options, rest = parser.parse_known_args()
    module, _, path = options.place.partition(":")
    owner, _, name = path.partition(".")
    kind = getattr(import_module(module), owner)
    setattr(kind, name, broken(getattr(kind, name), options.session))
    sys.argv[1:] = rest
    return engine.main()


if __name__ == "__main__":
    sys.exit(main())
