"""Commands of `dlcpd` that other packages provide as entry points.

An entry point of the group `dlcpd.commands` names a function that gets the arguments after the
command and returns an exit code. An example is `dlcpd server`: it needs the client package, which
the daemon does not need.
"""

from collections.abc import Callable, Sequence
from typing import Final

from dlcpd.contract.errors import BadConfig

GROUP: Final = "dlcpd.commands"


def found(arguments: Sequence[str]) -> Callable[[Sequence[str]], int] | None:
    """The command that the first argument names; None: the arguments are the daemon's own.

    Raises: BadConfig for a command that no installed package provides, or that cannot be loaded.
    """
    if not arguments or arguments[0].startswith("-"):
        return None
    from importlib.metadata import entry_points  # noqa: PLC0415  # 15 ms of the daemon's start

    name = arguments[0]
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in known:
        there = ", ".join(sorted(known)) or "none: install this package again"
        raise BadConfig(f"no command {name!r}; there are: {there}")
    try:
        run: Callable[[Sequence[str]], int] = known[name].load()
    except Exception as exc:
        raise BadConfig(
            f"{name}: {known[name].value} cannot be loaded ({type(exc).__name__}: {exc}); install "
            f"its package again"
        ) from exc
    return run
