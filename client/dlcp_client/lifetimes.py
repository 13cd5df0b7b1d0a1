"""What the end of the process and a fork mean to open sessions."""

import atexit
import os
import threading
from typing import Protocol


class Resource(Protocol):
    """A session, as seen from here."""

    def close(self) -> None:
        """Leave in good order."""

    def abandon(self) -> None:
        """In a forked child: leave it to the parent."""


# Strong: a session lives until it is closed, or the process ends. In the order of their begin:
# what was opened last, and may need the others, is closed first.
_open: dict[Resource, None] = {}
_lock = threading.Lock()


def opened(resource: Resource) -> None:
    """Close `resource` when the interpreter ends, and abandon it in forked children."""
    with _lock:
        _open[resource] = None


def closed(resource: Resource) -> None:
    """It is closed."""
    with _lock:
        _open.pop(resource, None)


def _close_all() -> None:
    for resource in reversed(list(_open)):
        resource.close()


def _abandon_all() -> None:
    global _lock  # noqa: PLW0603  # the parent's may be held by a thread that is not here
    _lock = threading.Lock()
    for resource in list(_open):
        resource.abandon()
    _open.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
